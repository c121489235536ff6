// The small parts that pages are made of.
import { h, redraw } from "../core/dom.js";
import { ago, time, visible } from "../core/format.js";
import { allowedIn } from "../core/live.js";
import { allowed } from "../core/session.js";
import { t } from "../core/text.js";

/** paths is the outline of each icon on a grid of 24. */
const paths = {
	overview: "M4 4h7v7H4zM13 4h7v4h-7zM13 10h7v10h-7zM4 13h7v7H4z",
	topology: "M12 3v6M12 15v6M5 12h4M15 12h4M9 9h6v6H9z",
	groups: "M4 6h16M4 12h16M4 18h10",
	instances: "M4 5h16v5H4zM4 14h16v5H4zM7 7.5h.01M7 16.5h.01",
	nodes: "M5 4h14v16H5zM9 8h6M9 12h6M12 16h.01",
	templates: "M6 3h8l4 4v14H6zM14 3v4h4",
	deployments: "M12 20V6M6 11l6-6 6 6",
	crashes: "M12 4l9 16H3zM12 10v4M12 17h.01",
	events: "M3 12h4l3-7 4 14 3-7h4",
	players: "M8 11a3 3 0 100-6 3 3 0 000 6zM2.5 20c0-4 2.5-6 5.5-6s5.5 2 5.5 6M16 11a2.5 2.5 0 100-5M16 14c3 0 5.5 2 5.5 6",
	networks: "M12 3a9 9 0 100 18 9 9 0 000-18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18",
	schedules: "M5 5h14v15H5zM5 10h14M9 3v4M15 3v4",
	users: "M12 12a4 4 0 100-8 4 4 0 000 8zM4 21c0-5 4-7 8-7s8 2 8 7",
	audit: "M6 3h12v18H6zM9 8h6M9 12h6M9 16h3",
	settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
	api: "M8 6l-5 6 5 6M16 6l5 6-5 6",
	search: "M10.5 17a6.5 6.5 0 100-13 6.5 6.5 0 000 13zM15.5 15.5L21 21",
	menu: "M4 6h16M4 12h16M4 18h16",
	close: "M6 6l12 12M18 6L6 18",
	more: "M5 12h.01M12 12h.01M19 12h.01",
	plus: "M12 5v14M5 12h14",
	back: "M15 5l-7 7 7 7",
	next: "M9 5l7 7-7 7",
	file: "M6 3h8l4 4v14H6z",
	folder: "M3 6h6l2 2h10v11H3z",
	copy: "M8 8h12v12H8zM4 16V4h12",
};

/** icon draws one of the icons. It is decoration: a text beside it or a label says the same. */
export function icon(name) {
	return h("svg:svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, h("svg:path", { d: paths[name] }));
}

/**
 * button draws a button. With needs, it is drawn only for users with that permission, in the group
 * if there is one.
 * @param {{label: string, onclick: any, kind?: string, icon?: string, needs?: string, group?: string, disabled?: boolean, title?: string, hideLabel?: boolean, type?: string, busy?: boolean, pressed?: boolean}} o
 */
export function button(o) {
	if (o.needs && !(o.group ? allowedIn(o.needs, o.group) : allowed(o.needs))) return null;
	return h(
		"button",
		{ type: o.type ?? "button", class: "button " + (o.kind ?? ""), onclick: o.onclick, disabled: Boolean(o.disabled || o.busy), title: o.title ?? (o.hideLabel ? o.label : undefined), "aria-label": o.hideLabel ? o.label : undefined, "aria-busy": o.busy ? "true" : undefined, "aria-pressed": o.pressed === undefined ? undefined : String(o.pressed) },
		o.icon ? icon(o.icon) : null,
		o.hideLabel ? null : h("span", null, o.label),
	);
}

/** tone says how good a state is. */
export function tone(state) {
	switch (state) {
		case "RUNNING": case "ONLINE": case "COMPLETED": case "SUCCESS": case "READY":
			return "good";
		case "SCHEDULED": case "PREPARING": case "STARTING": case "IN_PROGRESS": case "PROGRESSING": case "PENDING": case "ACTIVE":
			return "busy";
		case "DRAINING": case "STOPPING": case "PAUSED": case "CORDONED": case "UNREACHABLE": case "WAITING": case "WARNING":
			return "warn";
		case "CRASHED": case "FAILED": case "OFFLINE": case "DISCONNECTED": case "ROLLED_BACK": case "REFUSED": case "ERROR":
			return "bad";
	}
	return "idle";
}

/** badge draws a state as a word with a mark, so that colour is never the only sign. */
export function badge(state, title) {
	if (!state) return h("span", { class: "badge idle" }, "–");
	return h("span", { class: "badge " + tone(state), title }, t("state." + state) === "state." + state ? state : t("state." + state));
}

/** card draws a box with a heading. */
export function card(title, attrs, ...children) {
	const { actions, ...rest } = attrs ?? {};
	return h(
		"section",
		{ ...rest, class: "card " + (rest.class ?? "") },
		title ? h("header", { class: "card-head" }, h("h2", null, title), actions ?? null) : null,
		...children,
	);
}

/** empty says that there is nothing, why, and what to do next. */
export function empty(title, text, ...actions) {
	return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text ? h("p", { class: "muted" }, text) : null, actions.length ? h("div", { class: "row" }, ...actions) : null);
}

/** loading draws the place of what is being read. */
export function loading(text) {
	return h("div", { class: "loading", role: "status" }, text ?? t("loading"));
}

/**
 * failure draws why a request failed, and what to do.
 * @param {any} err
 * @param {() => any} [retry]
 */
export function failure(err, retry) {
	return h(
		"div",
		{ class: "notice bad", role: "alert" },
		h("p", null, h("strong", null, failureTitle(err))),
		err.message && err.status !== 0 ? h("p", null, visible(err.message)) : null,
		retry ? button({ label: t("action.retry"), onclick: retry }) : null,
	);
}

/** denied says which permission the user lacks. */
export function denied(permission) {
	return h("div", { class: "notice warn" }, h("p", null, h("strong", null, t("failure.403"))), h("p", null, t("denied", { permission })));
}

/** failureTitle says what kind of failure it was. */
export function failureTitle(err) {
	if (err.status === 0) return t("failure.offline");
	const text = t("failure." + err.status);
	if (text !== "failure." + err.status) return text;
	return err.status >= 500 ? t("failure.500") : err.status ? t("failure.other") : t("failure.page");
}

/** facts draws pairs of names and values. */
export function facts(...pairs) {
	return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value ?? "–"))));
}

/** age draws how long ago a time was, with the time itself as its title. */
export function age(when) {
	return when ? h("time", { datetime: typeof when === "string" ? when : new Date(when).toISOString(), title: time(when) }, ago(when)) : "–";
}

/**
 * bar draws a share of a whole. A bar of a resource warns when it is nearly full; progress does not.
 * @param {number} share
 * @param {string} label
 * @param {boolean} [progress]
 */
export function bar(share, label, progress) {
	const s = Math.max(0, Math.min(1, share || 0));
	return h("div", { class: "bar " + (progress ? "" : s > 0.9 ? "bad" : s > 0.75 ? "warn" : ""), role: "img", "aria-label": label, title: label }, h("div", { style: { width: s * 100 + "%" } }));
}

/**
 * tabs draws links to the parts of a page.
 * @param {{id: string, label: string, href: string}[]} list
 * @param {string} current
 */
export function tabs(list, current) {
	return h("nav", { class: "tabs", "aria-label": t("tabs") }, list.map((tab) => h("a", { href: tab.href, class: tab.id === current ? "current" : "", "aria-current": tab.id === current ? "page" : undefined, ref: tab.id === current ? showTab : undefined }, tab.label)));
}

/** showTab scrolls to the current tab where they do not all fit. */
function showTab(el) {
	if (el) el.parentElement.scrollLeft = el.offsetLeft - el.parentElement.offsetLeft - 32;
}

/**
 * heading draws the top of a page.
 * @param {any} title
 * @param {{crumbs?: [string, string][], actions?: any[], under?: any}} [o]
 */
export function heading(title, o = {}) {
	return h(
		"header",
		{ class: "page-head" },
		h("div", { class: "page-title" }, o.crumbs ? h("nav", { class: "crumbs", "aria-label": t("crumbs") }, o.crumbs.map(([name, href]) => h("a", { href }, name))) : null, h("h1", { tabindex: "-1" }, title), o.under ?? null),
		h("div", { class: "row actions" }, o.actions ?? []),
	);
}

/**
 * field draws a labelled input.
 * @param {{label: string, value?: any, oninput?: any, type?: string, hint?: any, error?: string, name?: string, options?: [string, string][], [k: string]: any}} o
 */
export function field(o) {
	const { label, hint, error, options, oninput, type, value, rows, list, ...rest } = o;
	const id = "f-" + (rest.name ?? label).replace(/\W+/g, "-").toLowerCase();
	const common = { ...rest, id, "aria-invalid": error ? "true" : undefined, "aria-describedby": hint || error ? id + "-hint" : undefined };
	let input;
	if (options) input = h("select", { ...common, value, onchange: (ev) => oninput(ev.target.value) }, options.map(([v, text]) => h("option", { value: v, selected: v === value }, text)));
	else if (type === "checkbox") return h("label", { class: "check", for: id }, h("input", { ...common, type, checked: Boolean(value), onchange: (ev) => oninput(ev.target.checked) }), h("span", null, label, hint ? h("small", { id: id + "-hint" }, hint) : null));
	else if (rows) input = h("textarea", { ...common, rows, value: value ?? "", oninput: (ev) => oninput(ev.target.value) });
	else input = h("input", { ...common, type: type ?? "text", value: value ?? "", list: list ? id + "-list" : undefined, oninput: (ev) => oninput(ev.target.value) });
	return h("div", { class: "field" }, h("label", { for: id }, label), input, list ? h("datalist", { id: id + "-list" }, list.map((v) => h("option", { value: v }))) : null, error ? h("small", { class: "error", id: id + "-hint" }, error) : hint ? h("small", { id: id + "-hint" }, hint) : null);
}

// Short messages at the edge of the page.

/** @type {{id: number, text: string, tone: string, undo?: () => any}[]} */
const messages = [];
let nextMessage = 1;

/**
 * say shows a short message. undo adds a button that takes the change back.
 * @param {string} text
 * @param {{tone?: string, undo?: () => any}} [o]
 */
export function say(text, o = {}) {
	const m = { id: nextMessage++, text, tone: o.tone ?? "good", undo: o.undo };
	messages.push(m);
	if (messages.length > 4) messages.shift();
	setTimeout(() => dismiss(m), o.tone === "bad" || o.undo ? 12000 : 5000);
	redraw();
}

/** sayFailure shows a failure as a short message. */
export function sayFailure(err) {
	if (err?.name === "AbortError") return;
	say(failureTitle(err) + (err.message && err.status !== 0 ? ": " + visible(err.message) : ""), { tone: "bad" });
}

function dismiss(m) {
	const i = messages.indexOf(m);
	if (i >= 0) messages.splice(i, 1);
	redraw();
}

/** toasts draws the messages of say. */
export function toasts() {
	return h("div", { class: "toasts", role: "status", "aria-live": "polite" }, messages.map((m) => h("div", { key: m.id, class: "toast " + m.tone }, h("span", null, m.text), m.undo ? button({ label: t("action.undo"), kind: "quiet", onclick: () => (dismiss(m), m.undo?.()) }) : null, button({ label: t("action.close"), icon: "close", hideLabel: true, kind: "quiet", onclick: () => dismiss(m) }))));
}

/**
 * attempt runs an action of the reader, and says what came of it.
 * @param {() => Promise<any>} f
 * @param {string} [done]
 * @param {{undo?: () => any}} [o]
 */
export async function attempt(f, done, o) {
	try {
		const result = await f();
		if (done) say(done, o);
		return result;
	} catch (err) {
		sayFailure(err);
		return undefined;
	}
}

/** Resource is something that a page reads: its data, or why there is none. */
export class Resource {
	/** @param {() => Promise<any>} read */
	constructor(read) {
		this.read = read;
		this.data = /** @type {any} */ (undefined);
		this.error = /** @type {any} */ (null);
		this.busy = false;
		this.again = false;
		/** @type {Promise<void>} */
		this.reading = Promise.resolve();
		this.reload();
	}

	/** reload reads it again. Calls while it is being read are one more read. */
	reload() {
		this.again = true;
		if (!this.busy) this.reading = this.readAll();
		return this.reading;
	}

	async readAll() {
		this.busy = true;
		do {
			this.again = false;
			try {
				this.data = await this.read();
				this.error = null;
			} catch (err) {
				this.error = err;
			}
		} while (this.again);
		this.busy = false;
		redraw();
	}

	/**
	 * show draws the data, or its place, or why it cannot be read.
	 * @param {(data: any) => any} draw
	 */
	show(draw) {
		if (this.data !== undefined && (!this.error || this.error.status === 0 || this.error.status === 429 || this.error.status >= 500)) return draw(this.data);
		if (this.error) return failure(this.error, () => this.reload());
		return loading();
	}
}
