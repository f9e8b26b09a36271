// Questions to the server; all addresses are relative, since the page may be mounted anywhere.

const PATIENCE = 30000; // milliseconds that an answer is waited for

async function ask(path, options) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE), ...options });
  let body = null;
  try {
    body = await answer.json();
  } catch {
    // No content, or a proxy's page: the status says it.
  }
  return {
    ok: answer.ok,
    status: answer.status,
    body,
    retryAfter: Number(answer.headers.get("Retry-After")) || 0,
  };
}

export const detailOf = ({ status, body }) =>
  typeof body?.detail === "string" ? body.detail : `the server answered with status ${status}`;

// Whether there is a session, and what it may do; null: no such answer came.
export async function getSession() {
  try {
    const { ok, body } = await ask("session");
    return ok && typeof body?.signed_in === "boolean" ? body : null;
  } catch {
    return null;
  }
}

// An answer, or one with status 0 where none came.
export async function post(path, fields) {
  try {
    return await ask(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(fields),
    });
  } catch {
    return { ok: false, status: 0, body: { detail: "the server did not answer" }, retryAfter: 0 };
  }
}

// Why a stream is refused: EventSource does not tell.  Null: it would not be, now.
export async function whyNoStream(address) {
  const abort = new AbortController();
  try {
    const answer = await fetch(address, { cache: "no-store", signal: abort.signal });
    if (answer.ok) return null;
    return detailOf({ status: answer.status, body: await answer.json().catch(() => null) });
  } catch {
    return null;
  } finally {
    abort.abort();
  }
}
