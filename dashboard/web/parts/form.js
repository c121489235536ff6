// Dialogs with fields.
import { h, redraw } from "../core/dom.js";
import * as live from "../core/live.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { fieldChanges } from "./actions.js";
import { ask } from "./dialog.js";
import { button, failure } from "./ui.js";
import { copy } from "./transfer.js";

/**
 * askForm opens a dialog with fields, and calls act when it is sent. What was typed stays in it when
 * act fails. With preview, the first sending shows what the server would do, and the second does it.
 * After a 412, theirs reads the object as it is now, and the reader decides between the two versions.
 * @param {{title: string, label: string, fields: () => any, act: () => Promise<any>, preview?: () => Promise<any>, show?: (answer: any) => any, danger?: boolean, wide?: boolean, theirs?: () => Promise<any>, mine?: () => any, keepMine?: (theirs: any) => void}} o
 * @returns {Promise<any>} what act returned, or undefined
 */
export function askForm(o) {
	const s = { busy: false, error: /** @type {any} */ (null), answer: /** @type {any} */ (null), theirs: /** @type {any} */ (null) };
	return ask(o.title, (close) => {
		const send = async (ev) => {
			ev?.preventDefault();
			if (s.busy) return;
			s.busy = true;
			s.error = null;
			redraw();
			try {
				if (o.preview && !s.answer) s.answer = await o.preview();
				else close((await o.act()) ?? true);
			} catch (err) {
				if (err.status === 412 && o.theirs) s.theirs = await o.theirs().catch(() => null);
				if (!s.theirs) s.error = err;
			}
			s.busy = false;
			redraw();
		};
		// What was asked about is no longer what would be sent.
		const typed = () => { s.answer = null; };
		return h(
			"form",
			{ class: "dialog-body", onsubmit: send, oninput: typed, onchange: typed },
			o.fields(),
			s.answer ? h("div", { class: "preview" }, h("h3", null, t("dialog.effect")), (o.show ?? ((a) => fieldChanges(a.diff)))(s.answer)) : null,
			s.theirs ? h("div", { class: "notice warn", role: "alert" }, h("p", null, h("strong", null, t("failure.412"))), h("p", null, t("form.conflict")), fieldChanges(objectDiff(s.theirs, o.mine?.() ?? {})), h("div", { class: "row" }, button({ label: t("form.keepMine"), onclick: () => { o.keepMine?.(s.theirs); s.theirs = null; s.answer = s.answer ?? {}; return send(); } }), button({ label: t("form.takeTheirs"), onclick: () => close() }))) : null,
			s.error ? failure(s.error) : null,
			h("div", { class: "row end" }, button({ label: t("action.cancel"), onclick: () => close() }), button({ label: o.preview && !s.answer ? t("form.check") : o.label, kind: o.danger ? "danger" : "primary", type: "submit", busy: s.busy, onclick: undefined })),
		);
	}, { wide: o.wide });
}

/** objectDiff returns the fields of next that differ from old. */
export function objectDiff(old, next) {
	return Object.keys(next).filter((k) => JSON.stringify(old[k] ?? null) !== JSON.stringify(next[k] ?? null)).map((k) => ({ field: k, from: old[k], to: next[k] }));
}

/**
 * showOnce shows a secret that the server does not show again.
 * @param {{title: string, text: any, secrets: [string, string][], done?: string}} o
 */
export function showOnce(o) {
	return ask(o.title, (close) => h("div", { class: "dialog-body" }, h("div", { class: "notice warn" }, o.text), o.secrets.map(([label, secret]) => h("div", { class: "secret" }, h("h3", null, label), h("pre", { class: "text", tabindex: "0", role: "region", "aria-label": label }, secret), h("div", { class: "row" }, button({ label: t("action.copy"), icon: "copy", onclick: () => copy(secret) })))), h("div", { class: "row end" }, button({ label: o.done ?? t("form.stored"), kind: "primary", onclick: () => close(true) }))));
}

/** list reads a comma-separated text. */
export function list(text) {
	return text.split(/[,\s]+/).map((s) => s.trim()).filter(Boolean);
}

/**
 * groupBoxes draws the groups as check boxes.
 * @param {Set<string>} chosen
 */
export function groupBoxes(chosen) {
	const names = [...new Set([...live.groups.keys(), ...chosen])].sort();
	return h("div", { class: "boxes-list" }, names.map((n) => h("label", { class: "check", key: n }, h("input", { type: "checkbox", checked: chosen.has(n), onchange: (ev) => { if (ev.target.checked) chosen.add(n); else chosen.delete(n); } }), h("span", null, visible(n)))));
}
