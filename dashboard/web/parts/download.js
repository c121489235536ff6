// Files of users are saved, never opened: a page among them must not run with this one's login.
import * as api from "../core/api.js";

/**
 * download saves what a GET answers with.
 * @param {string} path
 * @param {Record<string, any>} query
 * @param {string} name
 */
export async function download(path, query, name) {
	const answer = await api.request("GET", path, { query, raw: true });
	saveBlob(new Blob([await answer.arrayBuffer()], { type: "application/octet-stream" }), name);
}

/**
 * saveBlob saves bytes under a name.
 * @param {Blob} blob
 * @param {string} name
 */
export function saveBlob(blob, name) {
	const a = document.createElement("a");
	a.href = URL.createObjectURL(blob);
	a.download = name;
	a.click();
	setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
