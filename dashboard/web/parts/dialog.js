// Questions over the page. The browser's own dialog keeps the focus inside and ends on Escape.
import { h, redraw } from "../core/dom.js";
import { t } from "../core/text.js";
import { button, failure, loading } from "./ui.js";

/** @type {{id: number, body: () => any, el: HTMLDialogElement | null, title: string, close: (result?: any) => void, wide?: boolean}[]} */
const open = [];
let next = 1;

/**
 * ask opens a dialog and returns what it was closed with; undefined when it was dismissed.
 * @param {string} title
 * @param {(close: (result?: any) => void) => any} view
 * @param {{wide?: boolean}} [o]
 * @returns {Promise<any>}
 */
export function ask(title, view, o = {}) {
	return new Promise((resolve) => {
		const focused = /** @type {any} */ (document.activeElement);
		const d = {
			id: next++, title, wide: o.wide, el: /** @type {HTMLDialogElement | null} */ (null),
			body: () => view(d.close),
			close: (result) => {
				const i = open.indexOf(d);
				if (i < 0) return;
				open.splice(i, 1);
				redraw();
				resolve(result);
				d.el?.close(); // the page under it takes no focus before
				if (focused?.isConnected && focused !== document.body) focused.focus();
				else document.getElementById("main")?.focus({ preventScroll: true });
			},
		};
		open.push(d);
		redraw();
	});
}

// A dialog belongs to the page that it was opened on.
addEventListener("hashchange", (ev) => {
	const path = (url) => (url.split("#")[1] ?? "").split("?")[0]; // a page that stores an address sends none
	if (path(ev.oldURL) !== path(ev.newURL)) for (const d of [...open]) d.close();
});

/** isOpen reports whether a dialog is open. */
export function isOpen() {
	return open.length > 0;
}

/** dialogs draws the open dialogs. */
export function dialogs() {
	return h("div", null, open.map((d) => h(
		"dialog",
		// A browser may close a dialog on Escape without asking.
		{ key: d.id, class: d.wide ? "wide" : "", "aria-label": d.title, ref: (el) => { d.el = el; el?.showModal(); }, oncancel: (ev) => (ev.preventDefault(), d.close()), onclose: () => d.close() },
		h("header", { class: "card-head" }, h("h2", null, d.title), button({ label: t("action.close"), icon: "close", hideLabel: true, kind: "quiet", onclick: () => d.close() })),
		h(d.body),
	)));
}

/**
 * confirm shows what an act will do, and does it when the reader agrees. preview asks the server,
 * and its answer is drawn by show. act is called once the reader agrees; a failure is shown in
 * the dialog, which stays open. fields draws inputs; the function that it gets asks the server again.
 * @param {{title: string, text?: any, label: string, danger?: boolean, preview?: () => Promise<any>, show?: (answer: any) => any, act: (answer: any) => Promise<any>, typed?: string, fields?: (again: () => void) => any}} o
 * @returns {Promise<boolean>} whether it was done
 */
export function confirm(o) {
	// current is set when the answer is that to the fields as they are now.
	const state = { answer: /** @type {any} */ (undefined), current: false, error: /** @type {any} */ (null), busy: false, typed: "" };
	let asked = 0;
	/** @type {HTMLFormElement | null} */
	let form = null;
	const look = async () => {
		const mine = ++asked;
		state.error = null;
		// The browser does not send a form without a required value, and says which one.
		if ([...(form?.elements ?? [])].some((e) => /** @type {any} */ (e).validity?.valueMissing)) {
			Object.assign(state, { answer: null, current: true });
			return redraw();
		}
		try {
			const answer = o.preview ? await o.preview() : null;
			if (mine === asked) Object.assign(state, { answer, current: true });
		} catch (err) {
			if (mine === asked) state.error = err;
		}
		redraw();
	};
	let timer = 0;
	const again = () => {
		asked++;
		state.current = false;
		clearTimeout(timer);
		timer = setTimeout(look, 250);
	};
	look();
	return ask(o.title, (close) => {
		const act = async (ev) => {
			ev.preventDefault();
			if (state.busy || !state.current) return;
			state.busy = true;
			state.error = null;
			redraw();
			try {
				await o.act(state.answer);
				close(true);
			} catch (err) {
				state.error = err;
			}
			state.busy = false;
		};
		const waits = state.answer === undefined && !state.error;
		return h(
			"form",
			{ class: "dialog-body", onsubmit: act, ref: (el) => { form = el; } },
			o.text ? h("div", null, o.text) : null,
			o.fields ? o.fields(again) : null,
			waits && o.preview ? loading(t("dialog.asking")) : state.answer && o.show && (state.current || !state.error) ? h("div", { class: "preview" }, h("h3", null, t("dialog.effect")), o.show(state.answer)) : null,
			state.error ? failure(state.error, state.current ? undefined : look) : null,
			o.typed ? h("div", { class: "field" }, h("label", { for: "typed" }, t("dialog.type", { name: o.typed })), h("input", { id: "typed", autocomplete: "off", value: state.typed, oninput: (ev) => { state.typed = ev.target.value; } })) : null,
			h(
				"div",
				{ class: "row end" },
				button({ label: t("action.cancel"), onclick: () => close(false) }),
				button({ label: o.label, kind: o.danger ? "danger" : "primary", type: "submit", onclick: undefined, busy: state.busy, disabled: !state.current || (o.typed !== undefined && state.typed !== o.typed) }),
			),
		);
	}).then(Boolean);
}
