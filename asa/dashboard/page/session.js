// Who looks: the one-time code of the link is changed for a token, which this tab keeps until it is closed.

const KEPT = "asa-token";

export class NotAllowed extends Error {}

let token = sessionStorage.getItem(KEPT);

async function words(response) {
  return (await response.text()).slice(0, 500) || response.statusText;
}

// What the link's code opens: kind and name of a run or queue. Raises NotAllowed when it is none.
export async function enter(code) {
  const response = await fetch("/api/session", { method: "POST", body: JSON.stringify({ code }) });
  if (!response.ok) throw new NotAllowed(await words(response));
  const found = await response.json();
  token = found.token;
  sessionStorage.setItem(KEPT, token);
  return found;
}

export const known = () => token !== null;

// Have something done, which is never done by asking.
export const tell = (path) => ask(path, { method: "POST" });

export async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  if (response.status === 401) {
    sessionStorage.removeItem(KEPT);
    token = null;
    throw new NotAllowed(await words(response));
  }
  if (!response.ok) throw new Error(await words(response));
  return response;
}

export const path = (kind, name, what) => `/api/${encodeURIComponent(kind)}/${encodeURIComponent(name)}/${what}`;
