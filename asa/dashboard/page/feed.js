// A run or a queue as the server sends it: all of it first, then what changes.

import { ask, NotAllowed, path } from "./session.js";

const AGAIN_MS = 1000;
const AGAIN_MOST_MS = 15000;

export class Feed {
  // `changed` is called after each piece of news, with the names of the tables that are other than before; `troubled`
  // with what is wrong, and "" once nothing is; `refused` when the user has to sign in anew.
  constructor(kind, name, { changed, troubled, refused }) {
    Object.assign(this, { kind, name, changed, troubled, refused });
    this.aborter = new AbortController();
    this.reset();
    this.run();
  }

  reset() {
    this.tables = {};
    this.bars = [];
    this.now = this.from = this.to = 0;
    this.live = false;
    this.heard = performance.now();
  }

  close() {
    this.aborter.abort();
  }

  // The time now [s], which goes on between pieces of news.
  time() {
    return this.live ? this.now + (performance.now() - this.heard) / 1000 : this.now;
  }

  // The page as it was at a time [s].
  async at(when) {
    const response = await ask(`${path(this.kind, this.name, "at")}?t=${when}`, { signal: this.aborter.signal });
    const found = await response.json();
    return { tables: found.document, bars: found.bars };
  }

  async run() {
    let wait = AGAIN_MS;
    while (!this.aborter.signal.aborted) {
      try {
        await this.follow(() => { wait = AGAIN_MS; });
        return; // the server has said that nothing more comes
      } catch (error) {
        if (this.aborter.signal.aborted) return;
        if (error instanceof NotAllowed) return this.refused(error.message);
        this.troubled(`the dashboard does not answer (${error.message}); trying again`);
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(2 * wait, AGAIN_MOST_MS);
    }
  }

  async follow(began) {
    const response = await ask(path(this.kind, this.name, "stream"), { signal: this.aborter.signal });
    this.reset();
    this.troubled("");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("it has ended");
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line) continue;
        began();
        const record = JSON.parse(line);
        if (record.error !== undefined) return this.troubled(record.error);
        this.take(record);
      }
    }
  }

  take(record) {
    const changed = new Set(Object.keys(record.change ?? {}));
    for (const [table, part] of Object.entries(record.change ?? {})) {
      const rows = { ...this.tables[table], ...part.put };
      for (const key of part.drop ?? []) delete rows[key];
      this.tables = { ...this.tables, [table]: rows };
    }
    if (record.bars.length) {
      for (const bar of record.bars) this.bars.push(bar);
      changed.add("bars");
    }
    if (record.now !== undefined) {
      this.now = record.now;
      this.live = record.live;
      this.from = record.from;
      this.to = record.to;
      this.heard = performance.now();
    }
    this.changed(changed);
  }
}
