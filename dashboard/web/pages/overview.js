// The overview: how much runs, what is wrong and why, and what changed.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link } from "../core/router.js";
import { allowed } from "../core/session.js";
import { mib, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { Chart } from "../parts/chart.js";
import { age, badge, bar, button, card, denied, empty, heading, Resource } from "../parts/ui.js";
import { reloadOn } from "../parts/follow.js";
import { describeAudit, describeEvent, eventTone } from "../parts/describe.js";

const totals = live.derived(["instances", "nodes", "groups"], () => {
	const states = {};
	let players = 0, unplaced = 0;
	for (const i of live.instances.values()) {
		if (live.waits(i)) unplaced++;
		const state = live.stateOf(i);
		states[state] = (states[state] ?? 0) + 1;
		players += i.playerCount ?? 0;
	}
	const n = { total: live.nodes.size, online: 0, memory: 0, reserved: 0, cpu: 0 };
	for (const node of live.nodes.values()) {
		if (node.status === "ONLINE" || node.status === "CORDONED" || node.status === "DRAINING") n.online++;
		n.memory += node.effectiveCapacity?.memoryMb ?? 0;
		n.reserved += node.reserved?.memoryMb ?? 0;
	}
	return { states, players, unplaced, n, groups: live.groups.size };
});

export default class Overview {
	constructor() {
		this.series = new Resource(() => api.get("/api/v1/overview/timeseries", { window: "1h", buckets: 60 }));
		this.problems = allowed("groups.view") ? new Resource(() => api.get("/api/v1/problems", { pageSize: 50 })) : null;
		this.overview = new Resource(() => api.get("/api/v1/overview"));
		this.changes = allowed("audit.view") ? new Resource(() => api.get("/api/v1/audit", { class: "CHANGE", since: new Date(api.now() - 3600e3).toISOString(), pageSize: 12 })) : null;
		// What is wrong changes when something else does.
		this.end = reloadOn((e) => e.type !== "NODE_STATUS" && e.type !== "INSTANCE_METRICS", () => {
			this.problems?.reload();
			this.changes?.reload();
		}, 5000);
		// The gateway fills a bucket each minute.
		this.timer = setInterval(() => document.hidden || this.series.reload(), 60000);
	}

	removed() {
		this.end();
		clearInterval(this.timer);
	}

	view() {
		const now = totals();
		const running = now.states.RUNNING ?? 0;
		const waiting = (now.states.SCHEDULED ?? 0) + (now.states.PREPARING ?? 0) + (now.states.STARTING ?? 0);
		const spark = (name, value, color) => {
			const d = this.series.data;
			if (!d) return null;
			const values = [...(d.series[name] ?? [])];
			values[values.length - 1] = value;
			return h(Chart, { small: true, label: t("overview.hour"), series: [{ name: t("overview." + name), values, color }] });
		};
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.overview"), { actions: [button({ label: t("groups.new"), icon: "plus", kind: "primary", needs: "groups.create", onclick: () => { location.hash = "#/groups?new=1"; } })] }),
			this.overview.data?.insecureHttp ? h("div", { class: "notice warn" }, t("overview.insecure")) : null,
			h(
				"div",
				{ class: "tiles" },
				h("a", { class: "tile", href: link(["instances"]) }, h("span", { class: "muted" }, t("overview.instances")), h("span", { class: "figure" }, number(running)), h("span", { class: "muted small" }, now.unplaced ? t("overview.unplaced", { count: now.unplaced }) : waiting ? t("overview.starting", { count: waiting }) : t("overview.running")), spark("instances", running, 1)),
				h("a", { class: "tile", href: link(["players"]) }, h("span", { class: "muted" }, t("overview.players")), h("span", { class: "figure" }, number(now.players)), h("span", { class: "muted small" }, t("overview.connected")), spark("players", now.players, 4)),
				h("a", { class: "tile", href: link(["nodes"]) }, h("span", { class: "muted" }, t("overview.onlineNodes")), h("span", { class: "figure" }, number(now.n.online), now.n.online < now.n.total ? h("span", { class: "muted" }, " / " + now.n.total) : null), h("span", { class: "muted small" }, t("overview.online")), spark("onlineNodes", now.n.online, 2)),
				h("div", { class: "tile" }, h("span", { class: "muted" }, t("overview.memory")), h("span", { class: "figure" }, now.n.memory ? Math.round((100 * now.n.reserved) / now.n.memory) + " %" : "–"), h("span", { class: "muted small" }, t("overview.reserved", { used: mib(now.n.reserved), all: mib(now.n.memory) })), h("div", { class: "grow" }), bar(now.n.reserved / now.n.memory, t("overview.memory"))),
			),
			live.state.loaded && !live.state.failure && now.groups === 0 && allowed("groups.create") ? this.begin() : null,
			h("div", { class: "grid wide" }, this.wrong(), this.changed()),
			h("div", { class: "grid wide" }, this.states(now), this.happened()),
		);
	}

	begin() {
		return card(t("begin.title"), { class: "begin" }, h("p", null, t("begin.text")), h("ol", null, h("li", { class: live.nodes.size ? "done" : "" }, live.nodes.size ? t("begin.node.done", { count: live.nodes.size }) : t("begin.node")), h("li", null, t("begin.group")), h("li", null, t("begin.watch"))), h("div", { class: "row" }, button({ label: t("begin.do"), kind: "primary", icon: "plus", needs: "groups.create", onclick: () => { location.hash = "#/groups?new=1"; } }), h("a", { class: "button", href: "/docs" }, t("nav.api"))));
	}

	wrong() {
		const one = (x) => h(
			"li",
			{ key: x.kind + x.name + x.reason },
			h("span", { class: "badge " + (x.severity === "critical" ? "bad" : "warn") }, t("severity." + x.severity)),
			h("span", { class: "grow" }, h("a", { href: where(x) }, h("strong", null, visible(x.name))), " ", visible(x.message), x.fix ? h("small", { class: "muted block" }, visible(x.fix)) : null),
			age(x.since),
		);
		if (!this.problems) return card(t("overview.wrong"), null, denied("groups.view"));
		return card(t("overview.wrong"), null, this.problems.show((p) => (p.data.length === 0 ? h("p", { class: "calm" }, h("span", { class: "badge good" }, t("overview.fine")), h("span", { class: "muted" }, t("overview.fine.text"))) : h("ul", { class: "plain" }, p.data.map(one)))));
	}

	changed() {
		if (!this.changes) return null;
		return card(t("overview.changed"), { actions: h("a", { href: link(["audit"]) }, t("overview.all")) }, this.changes.show((p) => (p.data.length === 0 ? h("p", { class: "muted" }, t("overview.unchanged")) : h("ul", { class: "plain" }, p.data.map((x) => h("li", { key: x.id }, h("span", { class: "grow" }, describeAudit(x)), age(x.createdAt)))))));
	}

	states(now) {
		const list = Object.entries(now.states).sort((a, b) => b[1] - a[1]);
		return card(t("overview.states"), null, list.length === 0 ? h("p", { class: "muted" }, t("instances.none")) : h("ul", { class: "plain" }, list.map(([state, count]) => h("li", { key: state }, h("a", { class: "grow", href: link(["instances"], { state }) }, badge(state)), h("strong", null, number(count))))));
	}

	happened() {
		const list = live.recent.slice(0, 10);
		return card(t("overview.happened"), { actions: allowed("events.stream") ? h("a", { href: link(["events"]) }, t("overview.all")) : null }, list.length === 0 ? empty(t("overview.quiet"), t("overview.quiet.text")) : h("ul", { class: "plain" }, list.map((e) => h("li", null, h("span", { class: "dot " + eventTone(e) }), h("span", { class: "grow" }, describeEvent(e)), age(e.timestamp)))));
	}
}

function where(p) {
	if (p.kind === "group") return link(["groups", p.name]);
	if (p.kind === "node") return link(["nodes", p.name]);
	if (p.kind === "template-source") return link(["templates"]);
	return link(["settings"]);
}
