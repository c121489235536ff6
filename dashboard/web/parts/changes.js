// The files that differ between two versions of a template, each with its lines.
import { h } from "../core/dom.js";
import { bytes, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { textDiff, unifiedDiff } from "./diff.js";
import { Resource } from "./ui.js";

const marks = { ADDED: ["good", "+"], REMOVED: ["bad", "−"], CHANGED: ["busy", "±"], MODE: ["idle", "·"] };

/**
 * changes draws a list of changed files. texts(change) reads {old, next} or {unified} of one; without
 * it only the names are drawn. actions(change) draws buttons of one.
 * @param {any[]} files
 * @param {{texts?: (change: any) => Promise<any>, actions?: (change: any) => any, truncated?: boolean, scope?: string}} [o]
 */
export function changes(files, o = {}) {
	if (!files || files.length === 0) return h("p", { class: "muted" }, t("changes.none"));
	return h(
		"div",
		{ class: "changes" },
		files.map((c) => h(Change, { key: (o.scope ?? "") + c.path + c.oldHash + c.newHash, change: c, texts: o.texts, actions: o.actions })),
		o.truncated ? h("p", { class: "muted" }, t("changes.truncated", { count: files.length })) : null,
	);
}

/** Change is one file. Its lines are read when it is opened. */
class Change {
	constructor() {
		this.texts = /** @type {Resource | null} */ (null);
		this.open = false;
	}

	view({ change: c, texts, actions }) {
		const [tone, mark] = marks[c.change] ?? ["idle", "·"];
		const name = t("changes." + c.change);
		const line = [h("span", { class: "change-mark " + tone, "aria-hidden": "true" }, mark), h("span", { class: "grow mono" }, visible(c.path)), h("span", { class: "muted small" }, name.startsWith("changes.") ? c.change : name, " · ", sizes(c))];
		// A directory and a change of permissions have no lines.
		if (!texts || c.change === "MODE" || !(c.oldHash || c.newHash)) return h("div", { class: "change" }, h("div", { class: "change-line" }, line, actions?.(c)));
		return h(
			"div",
			{ class: "change" },
			h("div", { class: "change-line" }, h("button", { type: "button", class: "change-open", "aria-expanded": String(this.open), onclick: () => { this.open = !this.open; this.texts ??= new Resource(() => texts(c)); } }, h("span", { class: "caret", "aria-hidden": "true" }, this.open ? "▾" : "▸"), line), actions?.(c)),
			this.open && this.texts ? (this.texts.error?.status === 415 ? h("p", { class: "muted" }, t("changes.binary")) : this.texts.show((d) => (d.binary ? h("p", { class: "muted" }, t("changes.binary")) : d.unified === undefined ? textDiff(d.old, d.next, t("changes.of", { name: visible(c.path) })) : unifiedDiff(d.unified, t("changes.of", { name: visible(c.path) }))))) : null,
		);
	}
}

function sizes(c) {
	if (!c.oldHash && !c.newHash) return t("changes.directory");
	if (!c.oldHash && !c.oldSize) return bytes(c.newSize);
	if (!c.newHash && !c.newSize) return bytes(c.oldSize);
	return c.oldSize === c.newSize ? bytes(c.newSize) : bytes(c.oldSize) + " → " + bytes(c.newSize);
}
