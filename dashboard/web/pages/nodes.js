// All nodes: how full they are, and whether they take instances.
import { h } from "../core/dom.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { allowed } from "../core/session.js";
import { cores, mib, number, percent, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { List, sorted } from "../parts/list.js";
import { age, badge, bar, empty, heading, loading } from "../parts/ui.js";
import { nodeActions } from "../parts/actions.js";

/** share returns which part of a node's memory is reserved. */
export const share = (n) => (n.reserved?.memoryMb ?? 0) / (n.effectiveCapacity?.memoryMb || 1);

const columns = [
	{ id: "name", label: "nodes.name", width: "minmax(7rem,1.2fr)", cell: (n) => visible(n.id), sort: (n) => n.id },
	{ id: "status", label: "nodes.status", width: "8rem", cell: (n) => badge(n.status, n.message), sort: (n) => n.status },
	{ id: "memory", label: "nodes.memory", width: "minmax(10rem,1.2fr)", cell: (n) => h("span", { class: "meter" }, bar(share(n), t("nodes.reserved", { used: mib(n.reserved?.memoryMb), all: mib(n.effectiveCapacity?.memoryMb) })), h("small", { class: "muted" }, percent(share(n)))), sort: share },
	{ id: "cpu", label: "nodes.cpu", width: "6rem", align: "right", cell: (n) => percent(n.cpuUsage), sort: (n) => n.cpuUsage },
	{ id: "cores", label: "nodes.cores", width: "4.5rem", align: "right", cell: (n) => cores(n.totalCpu), sort: (n) => n.totalCpu, wide: true },
	{ id: "instances", label: "nav.instances", width: "6rem", align: "right", cell: (n) => number(n.instanceCount), sort: (n) => n.instanceCount },
	{ id: "seen", label: "nodes.seen", width: "8rem", align: "right", cell: (n) => age(n.lastHeartbeat), sort: (n) => n.lastHeartbeat, wide: true },
	{ id: "actions", label: "nodes.actions", width: "12rem", align: "right", cell: (n) => h("span", { class: "row end" }, nodeActions(n, true)), wide: true },
];

const filtered = live.derived(["nodes"], (text, status, column, descending) => {
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	const rows = [...live.nodes.values()].filter((n) => (!status || n.status === status) && words.every((w) => (n.id + " " + n.address + " " + Object.entries(n.labels ?? {}).map(([k, v]) => k + "=" + v).join(" ")).toLowerCase().includes(w)));
	return sorted(rows, columns, { column, descending });
});

export default class Nodes {
	view() {
		const q = route().query;
		const sort = { column: q.get("sort") ?? "name", descending: q.get("order") === "desc" };
		const text = q.get("q") ?? "", status = q.get("status") ?? "";
		const rows = filtered(text, status, sort.column, sort.descending);
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.nodes"), { actions: [allowed("tokens.create") ? h("a", { class: "button", href: link(["users"], { tab: "tokens" }) }, t("nodes.join")) : null] }),
			!live.state.loaded ? loading() : [
				h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("nodes.filter"), value: text, oninput: (ev) => setQuery({ q: ev.target.value }) }), h("select", { "aria-label": t("nodes.status"), value: status, onchange: (ev) => setQuery({ status: ev.target.value }) }, h("option", { value: "" }, t("nodes.any")), ["ONLINE", "CORDONED", "DRAINING", "UNREACHABLE", "OFFLINE"].map((s) => h("option", { value: s, selected: s === status }, t("state." + s)))), h("span", { class: "muted" }, t("nodes.count", { count: rows.length }))),
				h(List, { rows, columns: columns.map((c) => ({ ...c, label: t(c.label) })), id: (n) => n.id, href: (n) => link(["nodes", n.id]), sort, onsort: (column, descending) => setQuery({ sort: column, order: descending ? "desc" : "" }), label: t("nav.nodes"), none: live.nodes.size ? empty(t("list.none"), t("list.none.text")) : empty(t("nodes.none"), t("begin.node")) }),
			],
		);
	}
}
