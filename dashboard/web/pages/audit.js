// The audit: who changed what, and when.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { time, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { auditedName } from "../parts/describe.js";
import { textDiff } from "../parts/diff.js";
import { List } from "../parts/list.js";
import { age, button, card, empty, facts, failure, heading, loading } from "../parts/ui.js";

const filters = ["user", "action", "kind", "name", "class", "since"];
const classes = ["CHANGE", "ACCESS", "LOGIN", "UNPROVEN", "WORKLOAD"];
const hours = { "1h": 1, "24h": 24, "7d": 168, "30d": 720 };
const pageSize = 100;
/** quietTypes is the events that leave no entry. */
const quietTypes = new Set(["NODE_STATUS", "INSTANCE_METRICS", "NODE_CACHE_STATUS", "GROUP_AGGREGATES_UPDATED", "PLAYER_CONNECTED", "PLAYER_DISCONNECTED"]);
/** pages is where the object of an entry is shown. */
const pages = { group: "groups", instance: "instances", node: "nodes", template: "templates" };

export default class Audit {
	constructor() {
		this.rows = /** @type {any[]} */ ([]);
		this.next = /** @type {string | null} */ (null);
		this.error = /** @type {any} */ (null);
		this.state = "loading";
		this.asked = "";
		this.timer = 0;
		this.waiting = 0;
		this.end = live.subscribe((e) => {
			if (this.waiting || quietTypes.has(e.type)) return;
			this.waiting = setTimeout(() => {
				this.waiting = 0;
				this.latest();
			}, 1000);
		});
	}

	removed() {
		this.end();
		clearTimeout(this.waiting);
		clearTimeout(this.timer);
	}

	query() {
		const q = route().query, since = q.get("since") ?? "";
		return { user: q.get("user"), action: q.get("action"), resourceType: q.get("kind"), resourceId: this.namedInstance()?.uid ?? q.get("name"), class: q.get("class"), since: since in hours ? new Date(api.now() - hours[since] * 3600e3).toISOString() : since, pageSize };
	}

	/** namedInstance returns the instance that has the name in the filter now. Entries of instances have ids. */
	namedInstance() {
		const q = route().query;
		return q.get("kind") === "instance" ? [...live.instances.values()].findLast((i) => i.id === q.get("name")) : undefined;
	}

	/** follow reads the entries of other filters, after a pause in typing. */
	follow() {
		const asked = [...filters.map((f) => route().query.get(f) ?? ""), this.namedInstance()?.uid].join("\u0000");
		if (asked === this.asked) return;
		const first = this.asked === "";
		this.asked = asked;
		clearTimeout(this.timer);
		this.state = "loading";
		this.timer = setTimeout(() => this.read(""), first ? 0 : 300);
	}

	async read(cursor) {
		const asked = this.asked;
		this.state = "loading";
		this.error = null;
		redraw();
		try {
			const answer = await api.get("/api/v1/audit", { ...this.query(), cursor });
			if (asked !== this.asked) return;
			this.rows = cursor ? [...this.rows, ...answer.data] : answer.data;
			this.next = answer.nextCursor;
			this.state = "read";
		} catch (err) {
			if (asked !== this.asked) return;
			this.error = err;
			this.state = "failed";
		}
		redraw();
	}

	/** latest puts new entries on top. */
	async latest() {
		if (this.state !== "read") return;
		const asked = this.asked;
		try {
			const answer = await api.get("/api/v1/audit", this.query());
			if (asked !== this.asked || this.state !== "read") return;
			const known = new Set(this.rows.map((r) => r.id));
			const fresh = answer.data.filter((r) => !known.has(r.id));
			if (fresh.length === 0) return;
			if (fresh.length === answer.data.length) {
				this.rows = answer.data;
				this.next = answer.nextCursor;
			} else this.rows = [...fresh, ...this.rows];
			redraw();
		} catch {
			// The next event or the reader asks again.
		}
	}

	view() {
		this.follow();
		const q = route().query, id = q.get("entry"), entry = id ? this.rows.find((r) => r.id === id) : null;
		const text = (name) => {
			const values = [...new Set(this.rows.map((r) => ({ user: r.username, action: r.action, kind: r.resourceType, name: auditedName(r) })[name]).filter(Boolean))].slice(0, 100);
			return h("label", { class: "filter" }, h("span", null, t("audit." + name)), h("input", { type: name === "user" ? "search" : "text", value: q.get(name) ?? "", list: "audit-" + name, autocomplete: "off", oninput: (ev) => setQuery({ [name]: ev.target.value.trim(), entry: "" }) }), h("datalist", { id: "audit-" + name }, values.map((v) => h("option", { value: v }))));
		};
		const choice = (name, options) => h("label", { class: "filter" }, h("span", null, t("audit." + name)), h("select", { onchange: (ev) => setQuery({ [name]: ev.target.value, entry: "" }) }, h("option", { value: "", selected: !q.get(name) }, t("filter.all")), options.map((o) => h("option", { value: o, selected: q.get(name) === o }, t("audit." + name + "." + o)))));
		const set = filters.some((f) => q.get(f));
		return h("div", { class: "page" },
			heading(t("nav.audit"), { under: h("p", { class: "muted" }, t("audit.about")) }),
			h("div", { class: "filters ends" }, text("user"), text("action"), text("kind"), text("name"), choice("class", classes), choice("since", Object.keys(hours)), set ? button({ label: t("list.clear"), kind: "quiet", onclick: () => setQuery(Object.fromEntries([...filters, "entry"].map((f) => [f, ""]))) }) : null),
			this.namedInstance() ? h("p", { class: "muted" }, t("audit.instance", { id: this.namedInstance()?.uid })) : null,
			this.state === "failed" ? failure(this.error, () => this.read("")) : null,
			h("div", { class: id ? "beside" : "" }, this.list(q, id), id ? this.detail(id, entry) : null),
		);
	}

	list(q, id) {
		if (this.rows.length === 0 && this.state === "loading") return loading();
		if (this.rows.length === 0 && this.state === "failed") return null;
		const query = Object.fromEntries(q);
		const columns = [
			{ id: "time", label: t("audit.time"), width: "8rem", cell: (r) => age(r.createdAt) },
			{ id: "user", label: t("audit.user"), width: "minmax(6rem,1fr)", cell: (r) => visible(r.username || t("audit.nobody")) },
			{ id: "action", label: t("audit.action"), width: "minmax(8rem,1.2fr)", cell: (r) => h("span", null, h("span", { class: "mono small" }, r.action), r.result === "FAILED" ? [" ", h("span", { class: "badge bad" }, t("audit.failed"))] : null) },
			{ id: "object", label: t("audit.object"), width: "minmax(8rem,1.5fr)", cell: (r) => h("span", null, h("span", { class: "muted" }, r.resourceType + " "), visible(auditedName(r))) },
			...(id ? [] : [{ id: "details", label: t("audit.details"), width: "minmax(8rem,2fr)", wide: true, cell: (r) => visible(r.failure || r.details) }]),
		];
		return h("div", { class: "page" },
			h(List, { rows: this.rows, columns, id: (r) => r.id, href: (r) => link(["audit"], { ...query, entry: r.id }), label: t("nav.audit"), none: empty(t("list.none"), t("list.none.text")) }),
			this.next ? h("div", { class: "row" }, button({ label: t("action.more"), busy: this.state === "loading", onclick: () => this.read(this.next ?? "") })) : null,
		);
	}

	detail(id, r) {
		const close = button({ label: t("action.close"), icon: "close", hideLabel: true, kind: "quiet", onclick: () => setQuery({ entry: "" }) });
		if (!r) return card(t("audit.entry"), { actions: close, class: "aside" }, this.state === "loading" ? loading() : h("p", { class: "muted" }, t("audit.notListed")));
		const page = pages[r.resourceType];
		const json = (v) => (v === null || v === undefined ? "" : typeof v === "string" ? v : JSON.stringify(v, null, 2));
		return card(t("audit.entry"), { actions: close, class: "aside" },
			h("p", null, h("span", { class: "mono" }, r.action), r.result === "FAILED" ? [" ", h("span", { class: "badge bad" }, t("audit.failed"))] : null),
			r.failure ? h("p", { class: "notice bad" }, visible(r.failure)) : null,
			r.details ? h("p", null, visible(r.details)) : null,
			facts([t("audit.time"), h("span", { title: r.createdAt }, time(r.createdAt))], [t("audit.user"), h("a", { href: link(["audit"], { user: r.username }) }, visible(r.username || t("audit.nobody")))], [t("audit.role"), r.role], [t("audit.object"), [r.resourceType + " ", page && r.resourceId ? h("a", { href: link([page, r.resourceId]) }, visible(auditedName(r))) : visible(r.resourceId)]], [t("audit.class"), t("audit.class." + r.class)], [t("audit.address"), visible(r.ipAddress)], r.tokenId ? [t("audit.token"), h("span", { class: "mono" }, r.tokenId)] : null, [t("audit.revision"), String(r.revision || "–")], [t("audit.request"), h("span", { class: "mono small" }, visible(r.requestId))]),
			json(r.before) !== json(r.after) ? h("div", { class: "page" }, h("h3", null, t("audit.difference")), textDiff(json(r.before), json(r.after))) : h("p", { class: "muted small" }, t("audit.noDifference")),
			r.resourceId ? h("p", null, h("a", { href: link(["audit"], { kind: r.resourceType, name: r.resourceId }) }, t("audit.same"))) : null,
		);
	}
}
