// Tasks of a job side by side, each in lanes of its own, one lane a core.
//
// Bars come in the order in which they end. Each takes, of the lanes that were free when it began, those that have been
// free for the shortest time: so all of them fit whenever they can (Faigle and Nawijn 1995). A bar keeps its lane: what
// comes later never moves what is drawn.

const SLACK = 1e-6; // clocks of nodes differ a little

export class Lanes {
  constructor(count) {
    this.free = new Float64Array(Math.max(1, count)).fill(-Infinity);
  }

  // The lowest lane for a task of this width; where no lanes are free side by side, those that are free soonest.
  take(start, end, width) {
    const wide = Math.min(width, this.free.length);
    let best = -1, latest = -Infinity, soonest = 0, least = Infinity;
    for (let lane = 0; lane + wide <= this.free.length; lane++) {
      let ready = this.free[lane];
      for (let other = 1; other < wide; other++) ready = Math.max(ready, this.free[lane + other]);
      if (ready <= start + SLACK && ready > latest) [best, latest] = [lane, ready];
      if (ready <= start + SLACK && ready === -Infinity && best < 0) best = lane;
      if (ready < least) [soonest, least] = [lane, ready];
    }
    const lane = best < 0 ? soonest : best;
    this.free.fill(end, lane, lane + wide);
    return lane;
  }

  copy() {
    const made = new Lanes(this.free.length);
    made.free.set(this.free);
    return made;
  }
}
