// The form that asks for the access token.

import { detailOf, post } from "./api.js";
import { byId, setText } from "./dom.js";

let timer = 0;

export function startSignIn(onSignedIn) {
  byId("sign-in-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const field = byId("token");
    busy(true);
    const answer = await post("sign-in", { token: field.value });
    if (answer.ok) {
      field.value = "";
      tell("");
      busy(false);
      onSignedIn();
    } else if (answer.status === 429) {
      pause(Math.max(1, Math.ceil(answer.retryAfter)));
    } else {
      tell(answer.status === 401 ? "Wrong token." : `Not signed in: ${detailOf(answer)}`);
      busy(false);
      field.select();
      field.focus();
    }
  });
}

// Shows why the form is there, if that needs a word.
export function openSignIn(reason) {
  tell(reason);
  byId("token").focus();
}

const tell = (text) => setText(byId("sign-in-error"), text);

function busy(is) {
  byId("sign-in-button").disabled = is;
}

// Too many attempts: the button waits as long as the server says.
function pause(seconds) {
  clearInterval(timer);
  const end = performance.now() + seconds * 1000;
  tell("Too many attempts.");
  const step = () => {
    const left = Math.ceil((end - performance.now()) / 1000);
    busy(left > 0);
    setText(byId("sign-in-button"), left > 0 ? `Sign in (wait ${left} s)` : "Sign in");
    if (left <= 0) clearInterval(timer);
  };
  timer = setInterval(step, 500);
  step();
}
