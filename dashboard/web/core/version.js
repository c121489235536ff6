// The version of the dashboard. A page stays open while gateways are replaced, and some files of its
// version may then be gone.
import { redraw } from "./dom.js";

/** app is the path of the first module of this page. It names the version. */
const app = new URL("../app.js", import.meta.url).pathname;
let updated = false;

/** isUpdated reports whether the gateway has another version than this page. */
export function isUpdated() {
	return updated;
}

/** checkVersion asks the gateway for its version. */
export async function checkVersion() {
	try {
		const answer = await fetch("/", { headers: { Accept: "text/html" }, cache: "no-cache" });
		const served = /\/ui\/\w+\/app\.js/.exec(await answer.text())?.[0];
		if (served) updated = served !== app;
	} catch {
		return; // the page shows that the gateway does not answer
	}
	redraw();
}
