// One node: what it offers, what runs on it, and its drain.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route } from "../core/router.js";
import { bytes, cores, mib, number, percent, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { Chart } from "../parts/chart.js";
import { age, attempt, badge, bar, button, card, empty, facts, failure, heading, loading, Resource, tabs } from "../parts/ui.js";
import { fieldChanges, nodeActions } from "../parts/actions.js";
import { confirm } from "../parts/dialog.js";
import { Instances } from "./instances.js";

export default class Node {
	constructor({ path }) {
		this.name = path[1];
		this.path = api.url`/api/v1/nodes/${this.name}`;
		this.own = new Resource(() => api.get(this.path));
		this.resources = {};
		this.end = live.subscribe((e) => {
			if (e.nodeId === this.name && e.type !== "NODE_STATUS") this.own.reload();
		});
		this.timer = setInterval(() => document.hidden || this.resources.series?.reload(), 60000);
	}

	removed() {
		this.end();
		clearInterval(this.timer);
	}

	resource(name, read) {
		return (this.resources[name] ??= new Resource(read));
	}

	view() {
		const n = live.nodes.get(this.name) ?? this.own.data;
		if (!n) return this.own.error ? failure(this.own.error, () => this.own.reload()) : loading();
		const known = ["instances", "metrics", "machine", "cache", "history"];
		const wanted = route().query.get("tab") ?? "";
		const tab = known.includes(wanted) ? wanted : "instances";
		const drain = this.own.data?.drain ?? n.drain;
		const revoked = this.own.data?.revoked;
		return h(
			"div",
			{ class: "page" },
			heading(visible(n.id), { crumbs: [[t("nav.nodes"), "#/nodes"]], actions: [...nodeActions(n), revoked ? button({ label: t("node.unrevoke"), needs: "nodes.revoke-cert", onclick: () => attempt(() => api.post(this.path + "/unrevoke-cert"), t("node.unrevoke.done")).then(() => this.own.reload()) }) : button({ label: t("node.revoke"), kind: "danger", needs: "nodes.revoke-cert", onclick: () => this.revoke(n) })], under: h("div", { class: "row" }, badge(n.status), revoked ? h("span", { class: "badge bad" }, t("node.revoked")) : null, Object.entries(n.labels ?? {}).map(([k, v]) => h("span", { class: "tag" }, visible(k) + "=" + visible(v))), n.message ? h("span", { class: "muted" }, visible(n.message)) : null) }),
			drain ? this.drain(drain) : null,
			card(null, null, facts(
				[t("node.address"), h("code", null, visible(n.address))],
				[t("nodes.memory"), h("div", null, mib(n.reserved?.memoryMb) + " / " + mib(n.effectiveCapacity?.memoryMb), bar((n.reserved?.memoryMb ?? 0) / (n.effectiveCapacity?.memoryMb || 1), t("nodes.memory")))],
				[t("node.cpuReserved"), cores(n.reserved?.cpu) + " / " + cores(n.effectiveCapacity?.cpu)],
				[t("nodes.cpu"), percent(n.cpuUsage)],
				[t("node.memoryUsed"), mib(n.usedMemoryMb) + " / " + mib(n.totalMemoryMb)],
				[t("node.disk"), mib(n.freeDiskMb) + " / " + mib(n.totalDiskMb)],
				[t("nodes.seen"), age(n.lastHeartbeat)],
				[t("node.version"), visible(n.version)],
			)),
			tabs(known.map((id) => ({ id, label: t("node.tab." + id), href: link(["nodes", this.name], { tab: id }) })), tab),
			this[tab](n),
		);
	}

	drain(d) {
		const all = d.remainingInstances + (d.stopped?.length ?? 0);
		return card(t("node.drain"), { class: d.state === "COMPLETED" ? "" : "attention" }, h("div", { class: "row" }, badge(d.state), h("span", null, t("node.drain.left", { count: d.remainingInstances, players: d.players })), h("span", { class: "muted" }, t("node.drain.by", { who: visible(d.requestedBy) }), " ", age(d.requestedAt), d.completedAt ? "" : [" · ", t("node.drain.deadline"), " ", age(d.deadlineAt)])), all ? bar(1 - d.remainingInstances / all, t("node.drain"), true) : null, d.instances?.length ? h("ul", { class: "plain small" }, d.instances.map((i) => h("li", { key: i.uid }, h("a", { href: link(["instances", i.uid]) }, visible(i.id)), i.blocks ? h("span", { class: "badge warn" }, t("nodes.drain.blocks")) : null, h("span", { class: "grow muted" }, visible(i.outlook || i.message))))) : null, d.moves?.length ? h("ul", { class: "plain small" }, d.moves.map((m) => h("li", { key: m.uid }, h("a", { href: link(["instances", m.uid]) }, visible(m.id)), h("span", null, "→ " + visible(m.to || "?")), badge(m.step), m.bytesTotal ? h("span", { class: "muted" }, bytes(m.bytesDone) + " / " + bytes(m.bytesTotal)) : null, h("span", { class: "grow muted" }, visible(m.message))))) : null);
	}

	revoke(n) {
		return confirm({ title: t("node.revoke.title", { name: n.id }), text: h("p", null, t("node.revoke.text")), label: t("node.revoke"), danger: true, typed: n.id, act: async () => { await api.post(this.path + "/revoke-cert"); this.own.reload(); } });
	}

	instances() {
		return h(Instances, { node: this.name, without: ["node"] });
	}

	metrics() {
		const series = this.resource("series", () => api.get(this.path + "/metrics/timeseries", { window: "1h", buckets: 60 }));
		const names = { cpuUsage: [percent, 1, 1], usedMemoryMb: [mib, 2], instanceCount: [number, 3], freeDiskMb: [mib, 5] };
		return series.show((d) => h("div", { class: "grid" }, Object.entries(d.series).filter(([, v]) => v.some((x) => x !== null)).map(([name, values]) => card(t("metrics." + name), null, h(Chart, { label: t("metrics." + name), from: d.startedAtMs, step: d.bucketWidthMs, format: names[name]?.[0], max: names[name]?.[2], series: [{ name: t("metrics." + name), values, color: names[name]?.[1] ?? 4 }] })))));
	}

	machine(n) {
		const i = n.hostInfo ?? {};
		return h(
			"div",
			{ class: "grid wide" },
			card(t("node.machine"), null, facts([t("node.os"), visible((i.osName ?? "") + " " + (i.osVersion ?? ""))], [t("node.arch"), visible(i.arch)], [t("node.processor"), visible(i.cpuModel)], [t("nodes.cores"), number(i.cpuLogicalCores)], [t("node.java"), visible(i.javaVersion || t("node.noJava"))])),
			card(t("node.runtimes"), null, h("ul", { class: "plain" }, (n.runtimes ?? []).map((r) => h("li", null, h("strong", null, visible(r.name)), badge(r.offered ? "READY" : "STOPPED"), h("span", { class: "grow muted" }, visible(r.why ?? "")))))),
			card(t("node.isolation"), null, facts([t("node.limits"), n.limits?.held?.length ? n.limits.held.map(visible).join(", ") + " (" + visible(n.limits.by) + ")" : t("node.limits.none")], [t("node.tenants"), n.tenants ? t(n.tenants.isolated ? "node.tenants.yes" : "node.tenants.no") : t("unknown")]), n.tenants?.why ? h("p", { class: "muted" }, visible(n.tenants.why)) : null),
		);
	}

	cache() {
		return this.resource("cache", () => api.get(this.path + "/cache")).show((c) => {
			const list = c.templates ?? c.entries ?? c.versions ?? c.data ?? [];
			return card(t("node.cache"), { actions: button({ label: t("action.reload"), onclick: () => attempt(() => api.post(this.path + "/cache/refresh")).then(() => this.resources.cache.reload()) }) }, list.length === 0 ? h("p", { class: "muted" }, t("node.cache.empty")) : h("ul", { class: "plain" }, list.map((e) => h("li", null, h("span", { class: "grow" }, visible(e.template ?? e.name ?? e.path ?? "")), h("code", { class: "small" }, String(e.digest ?? e.hash ?? "").slice(0, 12)), h("span", { class: "muted" }, e.sizeBytes ? bytes(e.sizeBytes) : "")))));
		});
	}

	history() {
		return this.resource("history", () => api.get(api.url`/api/v1/history/node/${this.name}`)).show((p) => (p.data.length === 0 ? empty(t("instance.changes.none"), "") : card(t("node.tab.history"), null, h("ul", { class: "plain" }, p.data.map((c) => h("li", { key: c.id }, h("span", { class: "grow" }, h("strong", null, visible(c.by)), " ", h("span", { class: "mono small" }, c.action), " ", visible(c.details), c.diff?.length ? h("details", null, h("summary", null, t("history.diff", { count: c.diff.length })), fieldChanges(c.diff)) : null), age(c.at)))))));
	}
}

