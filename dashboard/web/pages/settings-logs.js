// The log of the gateways: the latest records, and new ones as they are written.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import { route, setQuery } from "../core/router.js";
import { duration, visible } from "../core/format.js";
import { language, t } from "../core/text.js";
import { shareButton } from "../parts/share.js";
import { button, card, failure, loading } from "../parts/ui.js";
import { saveText } from "../parts/transfer.js";

const levels = ["DEBUG", "INFO", "WARN", "ERROR"];
/** most is how many records are kept, and mostDrawn how many of them are drawn. */
const most = 5000;
const mostDrawn = 400;

/** Logs is the tab of the log. */
export class Logs {
	constructor() {
		this.records = /** @type {any[]} */ ([]);
		this.info = /** @type {any} */ (null);
		this.error = /** @type {any} */ (null);
		this.state = "off";
		this.source = /** @type {EventSource | null} */ (null);
		this.last = "";
		this.attempt = 0;
		this.gap = false;
		this.asked = "";
		this.pending = /** @type {any[]} */ ([]);
		this.timer = /** @type {any} */ (undefined);
		this.gone = false;
	}

	removed() {
		this.gone = true;
		this.close();
		clearTimeout(this.wait);
	}

	close() {
		this.source?.close();
		this.source = null;
		clearTimeout(this.timer);
		this.timer = undefined;
	}

	filter() {
		const q = route().query;
		return { level: q.get("level") || "INFO", logger: q.get("logger") ?? "" };
	}

	/** follow begins again when the filter or the way of reading has changed. */
	follow() {
		const q = route().query, live = q.get("live") === "1";
		const asked = JSON.stringify([this.filter(), live]);
		if (asked === this.asked) return;
		const first = this.asked === "";
		this.asked = asked;
		this.close();
		this.state = live ? "connecting" : "off";
		clearTimeout(this.wait);
		this.wait = setTimeout(() => {
			this.last = "";
			this.records = [];
			this.error = null;
			if (live) this.open();
			else this.read();
		}, first ? 0 : 300);
	}

	async read() {
		const asked = this.asked;
		try {
			const answer = await api.get("/api/v1/system/logs", { ...this.filter(), limit: 1000 });
			if (asked !== this.asked) return;
			this.records = answer.records;
			this.info = answer;
			this.error = null;
		} catch (err) {
			if (asked === this.asked) this.error = err;
		}
		redraw();
	}

	async open() {
		const asked = this.asked;
		this.close();
		this.state = "connecting";
		redraw();
		try {
			const { ticket } = await api.post("/api/v1/system/logs/ticket");
			if (asked !== this.asked || this.gone) return;
			const f = this.filter(), query = new URLSearchParams({ ticket, level: f.level, logger: f.logger, tail: "500" });
			if (this.last) query.set("lastEventId", this.last);
			this.listen(new EventSource("/api/v1/system/logs/stream?" + query));
		} catch (err) {
			if (asked !== this.asked) return;
			if (err.status >= 400 && err.status < 500 && err.status !== 429) {
				this.error = err;
				this.state = "off";
				return redraw();
			}
			this.again();
		}
	}

	listen(source) {
		this.source = source;
		source.addEventListener("connected", (ev) => {
			this.attempt = 0;
			this.state = "live";
			this.error = null;
			try {
				this.gateway = JSON.parse(ev.data).replica ?? JSON.parse(ev.data).gateway ?? "";
			} catch {
				this.gateway = "";
			}
			redraw();
		});
		source.addEventListener("log", (ev) => {
			this.last = ev.lastEventId;
			this.pending.push(JSON.parse(ev.data));
			// Under load the list is drawn a few times a second.
			this.timer ??= setTimeout(() => this.take(), 150);
		});
		source.addEventListener("gap", () => { this.gap = true; });
		// The browser would retry with the ticket that is used up.
		source.onerror = () => this.again();
	}

	take() {
		this.timer = undefined;
		const box = this.box, below = box && box.scrollHeight - box.scrollTop - box.clientHeight < 40;
		this.records = [...this.records, ...this.pending].slice(-most);
		this.pending = [];
		redraw();
		if (below) requestAnimationFrame(() => requestAnimationFrame(() => { if (this.box) this.box.scrollTop = this.box.scrollHeight; }));
	}

	again() {
		this.close();
		if (this.gone) return;
		this.attempt++;
		const wait = Math.min(15000, 500 * 2 ** this.attempt);
		this.state = "waiting";
		this.retryAt = Date.now() + wait;
		clearTimeout(this.wait);
		this.wait = setTimeout(() => this.open(), wait);
		redraw();
	}

	view() {
		this.follow();
		const q = route().query, f = this.filter(), text = (q.get("q") ?? "").toLowerCase(), live = q.get("live") === "1";
		const found = text ? this.records.filter((r) => line(r).toLowerCase().includes(text)) : this.records;
		const shown = found.slice(-mostDrawn);
		return card(t("settings.logs"), { actions: h("span", { class: "row" }, this.connection(), button({ label: t("logs.live"), pressed: live, onclick: () => setQuery({ live: live ? "" : "1" }) }), live ? null : button({ label: t("action.reload"), onclick: () => this.read() }), button({ label: t("action.download"), disabled: found.length === 0, onclick: () => saveText(found.map(line).join("\n") + "\n", "orrery.log") }), shareButton({ title: t("share.logs"), path: "/api/v1/system/logs/share", limit: 200, most: 1000, body: this.filter() })) },
			h("div", { class: "filters ends" },
				h("label", { class: "filter" }, h("span", null, t("logs.level")), h("select", { onchange: (ev) => setQuery({ level: ev.target.value === "INFO" ? "" : ev.target.value }) }, levels.map((l) => h("option", { value: l, selected: l === f.level }, t("logs.level." + l))))),
				h("label", { class: "filter" }, h("span", null, t("logs.logger")), h("input", { value: f.logger, placeholder: "apigateway/", autocomplete: "off", oninput: (ev) => setQuery({ logger: ev.target.value.trim() }) })),
				h("label", { class: "filter" }, h("span", null, t("filter")), h("input", { type: "search", value: q.get("q") ?? "", oninput: (ev) => setQuery({ q: ev.target.value }) })),
				h("span", { class: "muted small" }, t("logs.count", { count: found.length }))),
			this.error ? failure(this.error, () => { this.asked = ""; }) : null,
			!live && this.info?.missing?.length ? h("p", { class: "notice warn" }, this.info.missing.map((m) => visible(m + ": " + (this.info.missingReasons?.[m] ?? ""))).join("; ")) : null,
			live && this.gap ? h("p", { class: "notice warn" }, t("logs.gap")) : null,
			found.length > shown.length ? h("p", { class: "muted small" }, t("logs.shown", { count: shown.length })) : null,
			!this.info && !live && !this.error ? loading() : found.length === 0 ? h("p", { class: "muted" }, t("logs.none")) : h("div", { key: "log", class: "log scroll", tabindex: "0", role: "log", "aria-live": "off", "aria-label": t("settings.logs"), ref: (el) => { this.box = el; if (el) el.scrollTop = el.scrollHeight; } }, shown.map((r) => h("div", { key: r.thread + r.seq, class: "log-line" }, h("time", { datetime: new Date(r.ts).toISOString(), title: new Date(r.ts).toISOString() }, clock(r.ts)), h("span", { class: "log-level " + r.level.toLowerCase() }, r.level), h("span", { class: "log-text" }, h("span", null, visible(r.message)), r.throwable ? h("span", { class: "log-error" }, " " + visible(r.throwable)) : null, Object.entries(r.mdc ?? {}).map(([k, v]) => [" ", h("span", { class: "muted" }, visible(k) + "="), visible(v)]), h("span", { class: "muted small" }, " " + visible(r.thread) + " " + visible(r.logger)))))),
		);
	}

	connection() {
		if (this.state === "live") return h("span", { class: "live good", role: "status" }, t("live.live"), this.gateway ? " · " + visible(this.gateway) : "");
		if (this.state === "connecting") return h("span", { class: "live busy", role: "status" }, t("live.connecting"));
		if (this.state === "waiting") return h("span", { class: "live bad", role: "status" }, t("live.waiting", { duration: duration(Math.max(0, (this.retryAt ?? 0) - Date.now())) }));
		return null;
	}
}

function clock(ms) {
	const at = new Date(ms);
	return at.toLocaleTimeString(language(), { hour12: false }) + "." + String(at.getMilliseconds()).padStart(3, "0");
}

/** line writes a record as one line. */
function line(r) {
	return [new Date(r.ts).toISOString(), r.level, r.thread, r.logger, r.message, r.throwable ?? "", ...Object.entries(r.mdc ?? {}).map(([k, v]) => k + "=" + v)].filter(Boolean).join(" ");
}
