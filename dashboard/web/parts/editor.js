// A text editor: a textarea over the same text in colours, with line numbers. Only the lines in
// view are drawn. Of a large file the textarea holds one part, because browsers lay out the whole
// text of a textarea at each key.
import { h, quiet } from "../core/dom.js";
import { number } from "../core/format.js";
import { t } from "../core/text.js";
import { languageOf, longest, tokens } from "./highlight.js";
import { button } from "./ui.js";

/** largest is the size up to which a file is edited in one part, in UTF-16 units. */
const largest = 300000;
/** partLines and partSize bound a part of a larger file. */
const partLines = 10000;
const partSize = 200000;
/** odd matches characters that are not seen, or that change the order of the text around them. */
const odd = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
/** plainFrom is the size from which a file is shown without colours. */
const plainFrom = 8 << 20;

/**
 * Editor edits a text. attrs: text (read once; use a key for another one), path, readOnly, label,
 * onchange() when it changed, onsave() for Ctrl-S, line (to begin at), short (a lower box), and
 * ref(editor), which is called with (null, editor) at the end. text() returns what was typed.
 */
export class Editor {
	constructor(attrs) {
		this.attrs = attrs;
		attrs.ref?.(this);
		this.language = languageOf(attrs.path ?? "");
		const text = attrs.text;
		// A textarea has only "\n". What the file used is used again.
		this.newline = text.includes("\r\n") ? "\r\n" : "\n";
		this.mixed = /\r(?!\n)/.test(text) || (this.newline === "\r\n" && /(^|[^\r])\n/.test(text));
		const split = parts(text.replace(/\r\n?/g, "\n"));
		this.parts = split.texts;
		/** ends has what follows each part: an end of line, or nothing where a line is too long for one. */
		this.ends = split.ends;
		this.size = text.length;
		/** hidden is how many odd characters the text has at first, and the line of the first one. */
		this.hidden = { count: text.match(odd)?.length ?? 0, line: count(text.slice(0, Math.max(0, text.search(odd)))) + 1 };
		this.part = 0;
		this.states = ["main"];
		this.leave = false;
		this.find = "";
		this.found = /** @type {boolean | null} */ (null);
		this.frame = 0;
		this.lineHeight = 0;
		this.first = 1;
		this.asked = 0;
		/** @type {string[]} */
		this.lines = [];
		this.paint = () => {
			this.frame = 0;
			this.draw();
		};
		this.later = () => { this.frame ||= requestAnimationFrame(this.paint); };
	}

	/** text returns the text as it is now. */
	text() {
		this.keep();
		const all = this.parts.map((p, i) => p + this.ends[i]).join("");
		return this.newline === "\n" ? all : all.replace(/\n/g, this.newline);
	}

	/** keep takes what is in the textarea into its part. */
	keep() {
		if (this.area) this.parts[this.part] = this.area.value;
	}

	mounted(el) {
		this.box = el.querySelector(".editor-box");
		this.area = el.querySelector("textarea");
		this.gutter = el.querySelector(".editor-gutter > div");
		this.colours = el.querySelector(".editor-paint > div");
		this.watch = new ResizeObserver(this.later);
		this.watch.observe(this.area);
		this.fill();
		this.goToAsked();
	}

	updated() {
		this.goToAsked();
	}

	/** goToAsked goes to the line of the attributes, once. */
	goToAsked() {
		if (this.attrs.line === this.asked) return;
		this.asked = this.attrs.line;
		if (this.asked > 0) this.goTo(this.asked);
	}

	removed() {
		this.keep();
		this.watch?.disconnect();
		cancelAnimationFrame(this.frame);
		this.attrs.ref?.(null, this);
	}

	/** fill puts the current part into the textarea. */
	fill() {
		this.area.value = this.parts[this.part];
		this.area.setSelectionRange(0, 0);
		this.area.scrollTop = 0;
		this.first = 1;
		for (let i = 0; i < this.part; i++) this.first += count(this.parts[i]) + this.ends[i].length;
		this.split();
		this.states = ["main"];
		this.draw();
	}

	split() {
		this.lines = this.area.value.split("\n");
		this.size = this.parts.reduce((n, p, i) => n + (i === this.part ? 0 : p.length + 1), this.area.value.length);
	}

	/** open shows another part. */
	open(part) {
		if (part < 0 || part >= this.parts.length || part === this.part) return;
		this.keep();
		this.part = part;
		this.fill();
	}

	/** goTo puts the cursor on a line of the whole text. */
	goTo(line) {
		this.keep();
		let rest = Math.max(1, line) - 1, part = 0;
		while (part < this.parts.length - 1 && rest >= count(this.parts[part]) + this.ends[part].length) rest -= count(this.parts[part]) + this.ends[part++].length;
		this.open(part);
		rest = Math.min(rest, this.lines.length - 1);
		let at = 0;
		for (let i = 0; i < rest; i++) at += this.lines[i].length + 1;
		this.select(at, at + this.lines[rest].length);
	}

	/** select shows a piece of the current part and puts the selection on it. */
	select(from, to) {
		const row = count(this.area.value.slice(0, from)), column = from - (this.area.value.lastIndexOf("\n", from - 1) + 1);
		this.area.setSelectionRange(from, to);
		const height = this.height();
		this.area.scrollTop = Math.max(0, (row - 3) * height);
		this.area.scrollLeft = Math.max(0, (column - 40) * 8);
		this.later();
	}

	/** search selects the next place of the searched text, in the parts after this one too. */
	search(back) {
		const wanted = this.find.toLowerCase();
		if (!wanted) return;
		this.keep();
		const n = this.parts.length;
		for (let step = 0; step <= n; step++) {
			const part = (this.part + (back ? -step : step) + n * 2) % n;
			const text = this.parts[part].toLowerCase();
			let at;
			if (step === 0) at = back ? (this.area.selectionStart > 0 ? text.lastIndexOf(wanted, this.area.selectionStart - 1) : -1) : text.indexOf(wanted, this.area.selectionEnd);
			else at = back ? text.lastIndexOf(wanted) : text.indexOf(wanted);
			if (at < 0) continue;
			this.found = true;
			this.open(part);
			return this.select(at, at + wanted.length);
		}
		this.found = false;
	}

	height() {
		this.lineHeight ||= parseFloat(getComputedStyle(this.area).lineHeight) || 20;
		return this.lineHeight;
	}

	/** stateAt returns what a line of the part begins inside of. */
	stateAt(row) {
		while (this.states.length <= row) {
			const i = this.states.length - 1;
			this.states.push(tokens(this.language, this.lines[i], this.states[i]).state);
		}
		return this.states[row];
	}

	/** draw draws the lines that are in view. */
	draw() {
		if (!this.area || !this.area.isConnected) return;
		const height = this.height(), top = this.area.scrollTop, seen = this.area.clientHeight || 400;
		const from = Math.max(0, Math.floor(top / height) - 5), to = Math.min(this.lines.length, Math.ceil((top + seen) / height) + 5);
		this.gutter.style.setProperty("transform", "translateY(" + (from * height - top) + "px)");
		const numbers = document.createDocumentFragment();
		for (let i = from; i < to; i++) numbers.append(element("span", "", String(this.first + i)));
		this.gutter.replaceChildren(numbers);
		const width = String(this.first + this.lines.length).length + 2 + "ch";
		if (this.box.style.getPropertyValue("--gutter") !== width) this.box.style.setProperty("--gutter", width);
		const plain = this.size > plainFrom || hasLong(this.area.value);
		this.box.classList.toggle("plain-text", plain);
		if (plain) return this.colours.replaceChildren();
		this.colours.style.setProperty("transform", "translate(" + -this.area.scrollLeft + "px," + (from * height - top) + "px)");
		const out = document.createDocumentFragment();
		let state = this.stateAt(from);
		for (let i = from; i < to; i++) {
			const line = element("div", "", "");
			const found = tokens(this.language, this.lines[i], state);
			state = found.state;
			for (const [kind, text] of found.list) line.append(kind ? element("span", "tok-" + kind, text) : text);
			if (found.list.length === 0) line.append("\u200b");
			out.append(line);
		}
		this.colours.replaceChildren(out);
	}

	changed() {
		const from = this.area.value.lastIndexOf("\n", Math.max(0, this.area.selectionStart - 1));
		const row = from < 0 ? 0 : count(this.area.value.slice(0, from));
		this.split();
		this.states.length = Math.max(1, Math.min(this.states.length, row + 1));
		this.later();
		this.attrs.onchange?.();
	}

	keys(ev) {
		const a = this.area;
		if (ev.key === "Escape") {
			this.leave = true;
			return quiet;
		}
		if ((ev.ctrlKey || ev.metaKey) && ev.key.toLowerCase() === "s") {
			ev.preventDefault();
			this.attrs.onsave?.();
			return undefined;
		}
		if (ev.key === "Tab" && !this.leave && !this.attrs.readOnly && !ev.ctrlKey && !ev.altKey) {
			ev.preventDefault();
			this.indent(a, ev.shiftKey);
		}
		if (ev.key !== "Shift") this.leave = false;
		return quiet;
	}

	indent(a, less) {
		const unit = /^\t/m.test(a.value.slice(0, 5000)) ? "\t" : /^ {4}\S/m.test(a.value.slice(0, 5000)) && !/^ {2}\S/m.test(a.value.slice(0, 5000)) ? "    " : "  ";
		// execCommand is the only way that the browser can undo.
		if (a.selectionStart === a.selectionEnd && !less) return document.execCommand("insertText", false, unit);
		const from = a.value.lastIndexOf("\n", a.selectionStart - 1) + 1, end = a.value.indexOf("\n", Math.max(a.selectionStart, a.selectionEnd - 1)), to = end < 0 ? a.value.length : end;
		const old = a.value.slice(from, to);
		const next = old.split("\n").map((l) => (less ? l.replace(/^(\t| {1,4})/, (s) => (s[0] === "\t" ? "" : s.slice(unit.length))) : l ? unit + l : l)).join("\n");
		if (next === old) return;
		a.setSelectionRange(from, to);
		if (next) document.execCommand("insertText", false, next);
		else document.execCommand("delete");
		a.setSelectionRange(old.includes("\n") ? from : from + next.length, from + next.length);
	}

	view(attrs) {
		this.attrs = attrs;
		const many = this.parts.length > 1;
		return h(
			"div",
			{ class: "code-editor" },
			h(
				"div",
				{ class: "editor-tools" },
				h("input", { type: "search", "aria-label": t("editor.find"), placeholder: t("editor.find"), value: this.find, oninput: (ev) => { this.find = ev.target.value; this.found = null; return quiet; }, onkeydown: (ev) => { if (ev.key !== "Enter") return quiet; ev.preventDefault(); this.search(ev.shiftKey); return undefined; } }),
				button({ label: t("editor.previous"), icon: "back", hideLabel: true, kind: "quiet", onclick: () => this.search(true) }),
				button({ label: t("editor.next"), icon: "next", hideLabel: true, kind: "quiet", onclick: () => this.search(false) }),
				this.found === false ? h("span", { class: "muted small", role: "status" }, t("editor.nothing")) : null,
				many ? h("span", { class: "row" }, button({ label: t("editor.before"), icon: "back", kind: "small", disabled: this.part === 0, onclick: () => this.open(this.part - 1) }), h("span", { class: "small muted", role: "status" }, t("editor.part", { part: this.part + 1, parts: this.parts.length })), button({ label: t("editor.after"), icon: "next", kind: "small", disabled: this.part === this.parts.length - 1, onclick: () => this.open(this.part + 1) }), h("input", { class: "editor-line", type: "number", min: "1", "aria-label": t("editor.line"), placeholder: t("editor.line"), onchange: (ev) => this.goTo(Number(ev.target.value)) })) : null,
			),
			this.mixed ? h("p", { class: "muted small" }, t("editor.mixed")) : null,
			this.hidden.count ? h("div", { class: "notice warn" }, h("p", null, t("editor.hidden", this.hidden)), button({ label: t("editor.hidden.show", this.hidden), onclick: () => this.goTo(this.hidden.line) })) : null,
			many ? h("p", { class: "muted small" }, t("editor.large", { size: number(Math.round(this.size / 1024)) })) : null,
			this.size > plainFrom || this.parts.some(hasLong) ? h("p", { class: "muted small" }, t("editor.plain")) : null,
			h(
				"div",
				{ class: "editor-box" + (attrs.short ? " short" : "") },
				h("div", { class: "editor-gutter", "aria-hidden": "true" }, h(Still, { key: "g" })),
				h("div", { class: "editor-main" }, h("div", { class: "editor-paint", "aria-hidden": "true" }, h(Still, { key: "p" })), h("textarea", { "aria-label": attrs.label, "aria-describedby": attrs.readOnly ? undefined : "editor-help", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", readOnly: Boolean(attrs.readOnly), onkeydown: (ev) => this.keys(ev), oninput: () => (this.changed(), quiet), onscroll: () => (this.later(), quiet) })),
			),
			attrs.readOnly ? null : h("p", { class: "muted small", id: "editor-help" }, t("editor.help")),
		);
	}
}

/** Still is an element whose content the renderer leaves alone. */
class Still {
	view() {
		return h("div");
	}
}

/** hasLong reports whether a part has a line that is too long for colours. The answer is kept. */
const long = new Map();
function hasLong(part) {
	if (part.length <= longest) return false;
	let known = long.get(part);
	if (known === undefined) {
		if (long.size > 100) long.clear();
		known = part.split("\n").some((l) => l.length > longest);
		long.set(part, known);
	}
	return known;
}

/** parts splits a large text, at ends of lines where it can. */
function parts(text) {
	if (text.length <= largest) return { texts: [text], ends: [""] };
	const texts = [], ends = [];
	for (let at = 0; ; ) {
		let end = at, lines = 0, cut = false;
		while (lines < partLines && end - at < partSize) {
			const next = text.indexOf("\n", end);
			const line = (next < 0 ? text.length : next) - end;
			if (line > partSize) {
				// A line that is larger than a part, such as that of a JSON without line ends.
				end = lines > 0 ? end : at + partSize;
				cut = lines === 0;
				break;
			}
			if (next < 0) {
				texts.push(text.slice(at));
				ends.push("");
				return { texts, ends };
			}
			end = next + 1;
			lines++;
		}
		texts.push(text.slice(at, cut ? end : end - 1));
		ends.push(cut ? "" : "\n");
		at = end;
	}
}

/** count returns the number of line ends in a text. */
function count(text) {
	let n = 0;
	for (let i = text.indexOf("\n"); i >= 0; i = text.indexOf("\n", i + 1)) n++;
	return n;
}

function element(tag, cls, text) {
	const el = document.createElement(tag);
	if (cls) el.className = cls;
	el.textContent = text;
	return el;
}
