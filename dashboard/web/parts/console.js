// A console: what a server printed, from the first byte to now, and a line to type into it.
//
// Lines have one height, and only those in view are in the page. They are drawn here and not by
// the renderer, because a server may print thousands in a second.
import { h, quiet, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { bytes, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { shareButton } from "./share.js";
import { badge, button, failureTitle, sayFailure } from "./ui.js";
import { isRewritten, plain, spans } from "./ansi.js";
import { saveBlob } from "./download.js";
import { copy } from "./transfer.js";

/**
 * @typedef {{offset: number, text: string, note?: boolean}} Line
 * offset is that of the first byte in the log. note is a line that the page adds.
 */

const lineHeight = 18;
/** most and mostText are how many lines, and how many characters, are kept in the page. */
const most = 100000;
const mostText = 32 << 20;
const pageBytes = 256 * 1024;
const encoder = new TextEncoder();

/** Console shows the console of an instance. attrs: instance, and bare to leave out the heading. */
export class Console {
	constructor(attrs) {
		this.uid = attrs.instance.uid;
		this.name = attrs.instance.id;
		this.path = api.url`/api/v1/services/${this.uid}/console`;
		/** @type {Line[]} */
		this.lines = [];
		/** size is the number of characters in lines. */
		this.size = 0;
		/** rows is the lines that are drawn. */
		this.rows = /** @type {any[]} */ ([]);
		/** sending is the end of the lines that were typed before. */
		this.sending = Promise.resolve();
		this.draft = "";
		/** next is the offset after the last line. */
		this.next = 0;
		this.follow = true;
		/** away is set while older lines are shown and new ones are only counted. */
		this.away = false;
		this.unseen = 0;
		this.state = "connecting";
		this.why = "";
		this.ended = /** @type {any} */ (null);
		this.typed = "";
		this.failed = /** @type {any} */ (null);
		this.historyKey = "orrery.console." + attrs.instance.group;
		this.history = read(this.historyKey);
		this.historyAt = -1;
		this.search = "";
		this.found = /** @type {any} */ (null);
		this.mark = -1;
		this.attempt = 0;
		/** @type {HTMLElement | null} */
		this.box = null;
		this.frame = 0;
		this.loading = false;
	}

	mounted(el) {
		const box = (this.box = /** @type {HTMLElement} */ (el.querySelector(".console-view")));
		this.sizer = /** @type {HTMLElement} */ (box.firstElementChild);
		box.addEventListener("scroll", () => this.scrolled(), { passive: true });
		this.watch = new ResizeObserver(() => this.paintSoon());
		this.watch.observe(box);
		this.open({ lines: "500" });
	}

	/** updated follows an instance that was started again. Its log continues. */
	updated() {
		const i = this.instance;
		if (this.state !== "ended" || live.hasEnded(i) || !(i.generation > this.ended.generation)) return;
		this.ended = null;
		this.open(this.next ? { offset: String(this.next) } : { lines: "500" });
	}

	removed() {
		this.gone = true;
		this.source?.close();
		clearTimeout(this.timer);
		this.watch?.disconnect();
	}

	// The stream

	async open(from) {
		this.source?.close();
		this.state = "connecting";
		redraw();
		let ticket;
		try {
			({ ticket } = await api.post(this.path + "/ticket"));
		} catch (err) {
			if (err.status === 403 || err.status === 404) {
				this.state = "refused";
				this.failed = err;
				return redraw();
			}
			return this.later(err);
		}
		if (this.gone) return;
		const source = (this.source = new EventSource(this.path + "?" + new URLSearchParams({ ticket, ...from })));
		source.addEventListener("connected", () => {
			this.state = "live";
			this.attempt = 0;
			redraw();
		});
		source.onmessage = (ev) => this.take(ev.data, Number(ev.lastEventId));
		source.addEventListener("suppressed", (ev) => this.note(t("console.suppressed", { what: suppressed(ev.data) })));
		source.addEventListener("waiting", () => {
			this.state = "waiting";
			redraw();
		});
		source.addEventListener("end", (ev) => {
			source.close();
			this.state = "ended";
			this.ended = JSON.parse(ev.data);
			this.note(t("console.ended", { state: t("state." + (this.ended.state ?? "STOPPED")), message: visible(this.ended.message ?? this.ended.reason ?? "") }));
			redraw();
		});
		source.onerror = () => this.later(null);
	}

	later(err) {
		this.source?.close();
		if (this.gone || this.state === "ended") return;
		this.state = "offline";
		this.why = err?.message ?? "";
		this.attempt++;
		this.timer = setTimeout(() => this.open(this.next ? { offset: String(this.next) } : { lines: "500" }), Math.min(10000, 300 * 2 ** this.attempt));
		redraw();
	}

	take(text, next) {
		const offset = this.next && next > this.next ? this.next : Math.max(0, next - 1 - encoder.encode(text).length);
		if (this.state !== "live") {
			this.state = "live";
			redraw();
		}
		this.next = next;
		if (this.away) {
			this.unseen++;
			if (this.unseen % 100 === 1) redraw();
			return;
		}
		this.lines.push({ offset, text });
		this.size += text.length;
		if (!this.follow) {
			this.unseen++;
			if (this.unseen % 20 === 1) redraw();
		}
		if (this.lines.length > most || this.size > mostText) {
			const dropped = this.drop(Math.max(this.lines.length - most, 0) + 1000);
			if (!this.follow && !this.found && this.box) this.box.scrollTop -= dropped * lineHeight;
		}
		this.paintSoon();
	}

	/** drop removes the oldest lines: some, and more while there is too much text. */
	drop(count) {
		let n = 0;
		for (; n < this.lines.length - 1 && (n < count || this.size > mostText); n++) this.size -= this.lines[n].text.length;
		this.lines.splice(0, n);
		this.atStart = false;
		return n;
	}

	/** show replaces the lines. */
	show(lines) {
		this.lines = lines;
		this.size = lines.reduce((n, l) => n + l.text.length, 0);
	}

	note(text) {
		if (!this.away) {
			this.lines.push({ offset: this.next, text, note: true });
			this.size += text.length;
		}
		this.paintSoon();
	}

	// What is in view

	paintSoon() {
		if (this.frame) return;
		this.frame = requestAnimationFrame(() => {
			this.frame = 0;
			this.paint();
		});
	}

	paint() {
		const box = this.box;
		if (!box || !this.sizer) return;
		const shown = this.found ? this.found.lines : this.lines;
		const height = shown.length * lineHeight;
		this.sizer.style.height = height + "px";
		if (this.follow && !this.found) box.scrollTop = height;
		const from = Math.max(0, Math.floor(box.scrollTop / lineHeight) - 10);
		const to = Math.min(shown.length, from + Math.ceil(box.clientHeight / lineHeight) + 20);
		const lines = shown.slice(from, to), rows = lines.map((l, i) => this.row(l, from + i));
		// Rows that stay are not touched, so that a selection in them stays too.
		const keep = new Set(rows);
		for (const l of this.rows) if (!keep.has(l.$row)) {
			l.$row.remove();
			l.$row = null;
		}
		for (const el of [...this.sizer.children]) if (!keep.has(el)) el.remove();
		let at = /** @type {any} */ (this.sizer.firstChild);
		for (const row of rows) {
			if (row === at) at = at.nextSibling;
			else this.sizer.insertBefore(row, at);
		}
		this.rows = lines;
	}

	/** row draws a line. A row that was drawn before is used again. */
	row(line, index) {
		/** @type {any} */
		const l = line;
		const mark = this.search && !this.found ? this.search : "";
		if (l.$row && l.$mark === mark && l.$at === (line.offset === this.mark)) {
			l.$row.style.top = index * lineHeight + "px";
			return l.$row;
		}
		const row = document.createElement("div");
		row.className = "console-line" + (line.note ? " note" : "") + (line.offset === this.mark && !line.note ? " at" : "");
		row.style.top = index * lineHeight + "px";
		if (line.note) row.textContent = line.text;
		else for (const s of spans(shortened(line.text))) row.append(...marked(s, mark));
		if (this.found) {
			row.onclick = () => this.goTo(line.offset);
			row.onkeydown = (ev) => { if (ev.key === "Enter") this.goTo(line.offset); };
			row.tabIndex = 0;
		}
		l.$row = row;
		l.$mark = mark;
		l.$at = line.offset === this.mark;
		return row;
	}

	scrolled() {
		const box = this.box;
		if (!box || this.found) return this.paintSoon();
		const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - lineHeight;
		if (atEnd && this.away) this.forward();
		else if (atEnd !== this.follow && !this.away) {
			this.follow = atEnd;
			if (atEnd) this.unseen = 0;
			redraw();
		}
		if (box.scrollTop < 40 * lineHeight) this.backward();
		this.paintSoon();
	}

	// Older lines

	/** backward reads the lines before the first one. */
	async backward() {
		const first = this.lines.find((l) => !l.note);
		if (this.loading || !first || first.offset === 0 || this.atStart) return;
		this.loading = true;
		try {
			const answer = await api.get(this.path + "/history", { before: first.offset, limit: 2000 });
			const older = answer.lines.map((l) => ({ offset: l.offset, text: l.line }));
			if (older.length === 0) this.atStart = true;
			this.show([...older, ...this.lines]);
			// The box has to be higher before it can be scrolled further.
			if (this.sizer && !this.found) this.sizer.style.height = this.lines.length * lineHeight + "px";
			if (this.box && !this.found) this.box.scrollTop += older.length * lineHeight;
			if (this.lines.length > most) {
				this.show(this.lines.slice(0, most));
				this.away = true;
			}
		} catch (err) {
			sayFailure(err);
		}
		this.loading = false;
		this.paintSoon();
		redraw();
	}

	/** forward reads the lines after the last one, while the page is away from the end. */
	async forward() {
		const last = this.lines[this.lines.length - 1];
		if (this.loading || !last) return;
		this.loading = true;
		try {
			const { lines, next } = await this.readFrom(/** @type {any} */ (last).end ?? last.offset);
			this.show([...this.lines, ...lines.filter((l) => l.offset > last.offset)]);
			if (this.lines.length > most) {
				const dropped = this.drop(this.lines.length - most);
				if (this.box) this.box.scrollTop -= dropped * lineHeight;
			}
			if (lines.length === 0 || next >= this.next) {
				// The rest comes by the stream.
				this.away = false;
				this.unseen = 0;
				this.next = next;
				if (this.state !== "ended") this.open({ offset: String(next) });
			}
		} catch (err) {
			sayFailure(err);
		} finally {
			this.loading = false;
		}
		this.paintSoon();
	}

	/** readFrom reads whole lines, and returns the offset after them. */
	async readFrom(offset) {
		const answer = await api.request("GET", this.path + "/output", { query: { offset, maxBytes: pageBytes }, raw: true });
		const next = Number(answer.headers.get("Orrery-Next-Offset"));
		const data = new Uint8Array(await answer.arrayBuffer()), from = next - data.length;
		const end = data.lastIndexOf(10) + 1;
		// A line that goes on after what was read is read again, unless it fills all of it.
		if (end === 0 || next >= this.next) return { lines: split(data, from), next };
		return { lines: split(data.subarray(0, end), from), next: from + end };
	}

	/** goTo shows the lines around an offset. */
	async goTo(offset) {
		this.found = null;
		this.mark = offset;
		try {
			const before = Math.max(0, offset - 32 * 1024);
			const { lines, next } = await this.readFrom(before);
			// The first line may have begun earlier.
			if (before > 0 && lines.length > 1) lines.shift();
			this.show(lines);
			this.atStart = before === 0;
			this.follow = false;
			this.away = next < this.next;
			this.paint();
			const at = this.lines.findIndex((l) => l.offset >= offset);
			if (this.box) this.box.scrollTop = Math.max(0, at * lineHeight - this.box.clientHeight / 3);
		} catch (err) {
			sayFailure(err);
		}
		this.paintSoon();
		redraw();
	}

	/** latest returns to the newest lines. */
	latest() {
		this.found = null;
		this.mark = -1;
		this.follow = true;
		this.unseen = 0;
		if (this.away) {
			this.away = false;
			this.atStart = false;
			this.show([]);
			this.next = 0;
			this.open({ lines: "500" });
		}
		this.paintSoon();
		redraw();
	}

	/** find asks the server for all lines that match, because most of them are not in the page. */
	async find(ev) {
		ev.preventDefault();
		if (!this.search) return this.clearSearch();
		this.found = { lines: [], busy: true };
		redraw();
		try {
			const answer = await api.get(this.path + "/history", { grep: this.search, limit: 1000 });
			this.found = { lines: answer.lines.map((l) => ({ offset: l.offset, text: l.line })), more: answer.truncated };
			if (this.box) this.box.scrollTop = this.found.lines.length * lineHeight;
		} catch (err) {
			this.found = { lines: [], error: err };
		}
		this.paintSoon();
	}

	clearSearch() {
		this.search = "";
		this.found = null;
		this.paintSoon();
	}

	// Typing

	/** send sends what was typed, after what was typed before. */
	send(ev) {
		ev.preventDefault();
		const line = this.typed;
		if (!line) return undefined;
		this.typed = ev.target.querySelector("input").value = "";
		this.failed = null;
		this.historyAt = -1;
		this.history = [line, ...this.history.filter((x) => x !== line)].slice(0, 100);
		return (this.sending = this.sending.then(() => this.sendLine(line)));
	}

	async sendLine(line) {
		try {
			const answer = await api.post(api.url`/api/v1/services/${this.uid}/command`, { command: line });
			if (answer.via === "rcon" && answer.answer) for (const l of answer.answer.split("\n")) this.note(l);
			localStorage.setItem(this.historyKey, JSON.stringify(this.history));
			if (!this.follow) this.latest();
		} catch (err) {
			this.failed = err;
			this.typed ||= line;
		}
	}

	keys(ev) {
		if ((ev.key !== "ArrowUp" && ev.key !== "ArrowDown") || ev.isComposing) return quiet;
		ev.preventDefault();
		if (this.historyAt < 0) this.draft = this.typed;
		this.historyAt = Math.max(-1, Math.min(this.history.length - 1, this.historyAt + (ev.key === "ArrowUp" ? 1 : -1)));
		this.typed = this.historyAt < 0 ? this.draft : this.history[this.historyAt];
		ev.target.value = this.typed;
	}

	copy() {
		const shown = this.found ? this.found.lines : this.lines;
		return copy(shown.map((l) => plain(l.text)).join("\n"));
	}

	async download() {
		const parts = [], end = this.next || Infinity; // the server may print faster than this reads
		for (let offset = 0; offset < end; ) {
			const answer = await api.request("GET", this.path + "/output", { query: { offset, maxBytes: 1 << 20 }, raw: true });
			const data = await answer.arrayBuffer();
			if (data.byteLength === 0) break;
			parts.push(data);
			offset = Number(answer.headers.get("Orrery-Next-Offset"));
		}
		saveBlob(new Blob(parts, { type: "application/octet-stream" }), this.name + ".log");
	}

	view(a) {
		this.instance = a.instance;
		const first = this.lines.find((l) => !l.note);
		return h(
			"div",
			{ class: "console" },
			h(
				"div",
				{ class: "console-bar" },
				a.bare ? h("a", { href: "#/instances/" + this.uid }, h("strong", null, visible(this.name))) : null,
				h("span", { class: "live " + { live: "good", connecting: "busy", waiting: "warn", offline: "bad", refused: "bad", ended: "idle" }[this.state], role: "status", title: this.why }, t("console." + this.state)),
				h("span", { class: "muted small grow console-range" }, first && !this.found ? t("console.from", { from: bytes(first.offset), to: bytes(this.next) }) : ""),
				h("form", { class: "console-search", role: "search", onsubmit: (ev) => this.find(ev) }, h("input", { type: "search", "aria-label": t("console.search"), placeholder: t("console.search"), value: this.search, oninput: (ev) => { this.search = ev.target.value; if (!this.search) this.found = null; this.paintSoon(); } })),
				button({ label: t("console.first"), kind: "quiet small", title: t("console.first.hint"), onclick: () => this.goTo(0) }),
				button({ label: t("action.copy"), kind: "quiet small", icon: "copy", hideLabel: true, onclick: () => this.copy() }),
				button({ label: t("action.download"), kind: "quiet small", onclick: () => this.download().catch(sayFailure) }),
				shareButton({ title: t("share.console", { name: visible(this.name) }), path: this.path + "/share", limit: 500, most: 5000, kind: "quiet small" }),
			),
			this.found ? h("div", { class: "banner", role: "status" }, this.found.error ? h("span", { class: "grow" }, failureTitle(this.found.error) + ": " + visible(this.found.error.message)) : h("span", { class: "grow" }, this.found.busy ? t("loading") : t("console.found", { count: this.found.lines.length }) + (this.found.more ? " " + t("console.found.more") : "")), button({ label: t("console.back"), kind: "small", onclick: () => this.clearSearch() })) : null,
			h(
				"div",
				{ class: "console-frame" },
				h("div", { class: "console-view", tabindex: "0", role: "log", "aria-live": "off", "aria-label": t("console.of", { name: this.name }) }, h("div", { class: "console-sizer" })),
				(this.away || !this.follow) && !this.found ? h("button", { type: "button", class: "button small console-latest", onclick: () => this.latest() }, this.unseen ? t("console.unseen", { count: number(this.unseen) }) : t("console.latest"), " ↓") : null,
			),
			this.failed && this.state !== "refused" ? h("div", { class: "notice bad", role: "alert" }, failureTitle(this.failed) + (this.failed.message ? ": " + visible(this.failed.message) : "")) : null,
			this.state === "refused" ? h("div", { class: "notice bad", role: "alert" }, visible(this.failed?.message)) : null,
			live.allowedIn("instances.command", a.instance.group) && this.state !== "ended" && this.state !== "refused"
				? h("form", { class: "console-input", onsubmit: (ev) => this.send(ev) }, h("span", { class: "mono", "aria-hidden": "true" }, ">"), h("input", { class: "mono", "aria-label": t("console.input", { name: this.name }), placeholder: t("console.placeholder"), value: this.typed, maxlength: "1000", autocomplete: "off", autocapitalize: "off", spellcheck: "false", oninput: (ev) => { this.typed = ev.target.value; this.historyAt = -1; return quiet; }, onkeydown: (ev) => this.keys(ev) }), button({ label: t("console.send"), type: "submit", kind: "primary", onclick: undefined }))
				: null,
			this.ended ? h("div", { class: "row" }, badge(this.ended.state), h("span", { class: "muted" }, visible(this.ended.message ?? ""))) : null,
		);
	}
}

function suppressed(data) {
	try {
		const d = JSON.parse(data);
		return number(d.lines ?? d.count ?? 0);
	} catch {
		return data;
	}
}

function read(key) {
	try {
		return JSON.parse(localStorage.getItem(key) ?? "[]");
	} catch {
		return [];
	}
}

/** split cuts bytes at their newlines and keeps where each line began. */
function split(data, offset) {
	const lines = [], decoder = new TextDecoder();
	let from = 0;
	for (let i = 0; i <= data.length; i++) {
		if (i < data.length && data[i] !== 10) continue;
		if (i === data.length && from === i) break;
		lines.push({ offset: offset + from, text: decoder.decode(data.subarray(from, i)).replace(/\r$/, ""), end: offset + Math.min(i + 1, data.length) });
		from = i + 1;
	}
	return lines;
}

/** longest is how many characters of a line are drawn. */
const longest = 20000;

/** shortened returns the beginning of a long line, or the latest text of one that is rewritten. */
function shortened(text) {
	if (text.length <= longest) return text;
	return isRewritten(text) ? text.slice(-longest) : text.slice(0, longest) + " …";
}

/** marked draws a span with the places that match the search marked. */
function marked(s, search) {
	const element = (text, tag) => {
		const el = document.createElement(tag);
		if (s.class) el.className = s.class;
		el.textContent = text;
		return el;
	};
	if (!search) return [s.class ? element(s.text, "span") : document.createTextNode(s.text)];
	const list = [], lower = s.text.toLowerCase(), wanted = search.toLowerCase();
	let at = 0;
	for (let i = lower.indexOf(wanted); i >= 0; i = lower.indexOf(wanted, at)) {
		if (i > at) list.push(element(s.text.slice(at, i), "span"));
		list.push(element(s.text.slice(i, i + wanted.length), "mark"));
		at = i + wanted.length;
	}
	if (at < s.text.length) list.push(element(s.text.slice(at), "span"));
	return list;
}

