// The address of a page is in the fragment: #/groups/lobby?tab=history. Every state that is worth
// a link is there, so back, forward and reload work.
import { redraw } from "./dom.js";
import * as scroll from "./scroll.js";

/** @typedef {{path: string[], query: URLSearchParams, text: string}} Route */

/** @type {Route} */
let current = parse(location.hash);
/** @type {{stays: () => boolean, always: boolean}[]} */
const holds = [];

function parse(hash) {
	const text = hash.replace(/^#/, "") || "/";
	const [path, query] = splitOnce(text, "?");
	return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query), text };
}

function splitOnce(s, by) {
	const i = s.indexOf(by);
	return i < 0 ? [s, ""] : [s.slice(0, i), s.slice(i + 1)];
}

function decoded(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

/** route returns where the reader is. */
export function route() {
	return current;
}

/**
 * link returns the fragment for a path and query. Empty query values are left out.
 * @param {string[]} path
 * @param {Record<string, any>} [query]
 */
export function link(path, query) {
	const q = new URLSearchParams();
	for (const [k, v] of Object.entries(query ?? {})) if (v !== undefined && v !== null && v !== "") q.set(k, String(v));
	const s = q.toString();
	return "#/" + path.map(encodeURIComponent).join("/") + (s ? "?" + s : "");
}

/**
 * go opens a page.
 * @param {string[]} path
 * @param {Record<string, any>} [query]
 */
export function go(path, query) {
	location.hash = link(path, query);
}

/**
 * setQuery changes parts of the query without a new entry in the browser's history.
 * @param {Record<string, any>} changes
 */
export function setQuery(changes) {
	const query = Object.fromEntries(current.query);
	for (const [k, v] of Object.entries(changes)) query[k] = v;
	history.replaceState(history.state, "", link(current.path, query));
	current = parse(location.hash);
	redraw();
}

/**
 * hold asks stays before the reader leaves the page, or with always, before any change of the address.
 * It returns true to stay. The result ends the hold.
 * @param {() => boolean} stays
 * @param {boolean} [always]
 */
export function hold(stays, always = false) {
	const one = { stays, always };
	holds.push(one);
	return () => {
		const i = holds.indexOf(one);
		if (i >= 0) holds.splice(i, 1);
	};
}

/** listen follows the browser's history. Call it once. */
export function listen() {
	scroll.listen();
	addEventListener("hashchange", () => {
		const next = parse(location.hash);
		const back = scroll.moved();
		if (next.text === current.text) return;
		const moved = next.path.join("/") !== current.path.join("/");
		if (holds.some((x) => (moved || x.always) && x.stays())) {
			history.replaceState(history.state, "", "#" + current.text);
			return;
		}
		current = next;
		redraw();
		if (back || moved) scroll.to(back ?? 0);
	});
	addEventListener("beforeunload", (ev) => {
		if (holds.some((x) => x.stays())) ev.preventDefault();
	});
}
