// Colours that colour-blind readers can tell apart (Okabe and Ito 2008), and signs, for colour alone says nothing.

export const STAGES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];

export const stageColour = (position) => STAGES[((position % STAGES.length) + STAGES.length) % STAGES.length];

const SIGNS = {
  waiting: "○", ready: "◔", running: "▶", done: "✓", partial: "◐", failed: "✕", skipped: "–", stopped: "■", "not run": "–",
  pending: "○", completed: "✓", timeout: "✕", cancelled: "■", node_fail: "✕", preempted: "✕", out_of_memory: "✕",
  lost: "✕", succeeded: "✓", interrupted: "■", unknown: "?", ended: "✓",
};

export const sign = (state) => SIGNS[state] ?? "·";

const KINDS = {
  done: "good", completed: "good", succeeded: "good", ended: "good", running: "busy", ready: "soon", waiting: "idle",
  pending: "idle", skipped: "idle", "not run": "idle", stopped: "idle", cancelled: "idle", interrupted: "soon",
  unknown: "idle",
};

// Which of the page's classes a state has.
export const kind = (state) => KINDS[state] ?? "bad";
