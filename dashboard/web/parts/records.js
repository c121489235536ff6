// Lists of objects that are few and have much to show: one card for each, and a filter.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { route, setQuery } from "../core/router.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { button, empty } from "./ui.js";

/** few is how many objects need no filter. */
const few = 3;

/**
 * records draws objects as cards. words returns the text that the filter searches.
 * @param {any[]} all
 * @param {{words: (o: any) => string, draw: (o: any) => any, none: any}} o
 */
export function records(all, o) {
	if (all.length === 0) return o.none;
	const q = route().query.get("q") ?? "", shown = all.filter((x) => o.words(x).toLowerCase().includes(q.toLowerCase()));
	return h("div", { class: "page" },
		all.length > few || q ? h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("filter"), value: q, oninput: (ev) => setQuery({ q: ev.target.value }) })) : null,
		shown.length === 0 ? empty(t("list.none"), t("list.none.text"), button({ label: t("list.clear"), onclick: () => setQuery({ q: "" }) })) : h("div", { class: "grid wide" }, shown.map(o.draw)));
}

/**
 * put writes an object by its name. A new one does not replace one with the same name.
 * @param {string} path
 * @param {any} body
 * @param {{create: boolean, ifMatch?: string, dryRun?: boolean}} o
 */
export async function put(path, body, o) {
	try {
		return await api.request("PUT", path, { body, ...o });
	} catch (err) {
		if (o.create && err.status === 412) throw new api.Failure(409, err.code, t("records.exists"));
		throw err;
	}
}

/** pairs writes labels as a text: game=bedwars, size=8. */
export function pairs(labels) {
	return Object.entries(labels ?? {}).map(([k, v]) => visible(k + "=" + v)).join(", ");
}

/**
 * labels reads what pairs writes.
 * @param {string} text
 */
export function labels(text) {
	return Object.fromEntries(text.split(",").map((s) => s.trim()).filter(Boolean).map((s) => {
		const at = s.indexOf("=");
		if (at < 1) throw new api.Failure(422, "", t("records.labels", { text: visible(s) }));
		return [s.slice(0, at).trim(), s.slice(at + 1).trim()];
	}));
}
