// What may be asked of the run that is shown: asked back first, then carried out by the command of that name.

import { byId, h, show } from "./dom.js";
import { path, tell } from "./session.js";

const HELD = "Nothing new is submitted or started until it is released. What runs goes on; jobs in the queue stay there, may " +
  "start, and are charged for.";
const MEANS = {
  hold: ["Hold", HELD],
  release: ["Release", "It goes on: what is ready is submitted and started."],
  cancel: ["Cancel", "Jobs that wait are cancelled, those that run are ended. What is done stays done: it can be resumed."],
  resume: ["Resume", "It goes on where it stands, in a process that does not end with this page. What is done is not done again."],
};

const offered = ({ state, held }) => (state === "running" ? [held ? "release" : "hold", "cancel"] :
  state === "interrupted" ? ["resume", "cancel"] : ["failed", "cancelled", "partial"].includes(state) ? ["resume"] : []);

export function drawActions(run) {
  const names = run ? offered(run) : [];
  show(byId("actions"), JSON.stringify([run?.run, names]), () => names.map((name) => h("button", {
    type: "button", "aria-haspopup": "dialog", class: name === "cancel" ? "bad" : null, on: { click: () => sure(run.run, name) },
  }, MEANS[name][0])));
}

function sure(run, name) {
  const [title, words] = MEANS[name];
  byId("t-sure").textContent = `${title} run ${run}?`;
  byId("means").textContent = words;
  byId("came").textContent = "";
  const yes = byId("yes");
  yes.hidden = false;
  byId("no").textContent = "Back";
  yes.textContent = `${title} it`;
  yes.disabled = false;
  const act = async () => {
    yes.disabled = true;
    byId("came").textContent = "…";
    const words = await tell(path("runs", run, name)).then(async (answer) => (await answer.json()).said, (error) => error.message);
    if (yes.onclick !== act) return; // something else is asked by now
    byId("came").textContent = words;
    yes.hidden = true;
    byId("no").textContent = "Close";
    byId("no").focus();
  };
  yes.onclick = act;
  byId("sure").showModal();
  byId("no").focus();
}

byId("no").addEventListener("click", () => byId("sure").close());
