// The fleet as a picture: each node is a box, filled by its instances in proportion to their memory.
import { h } from "../core/dom.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { mib, number, percent, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { compare } from "../parts/list.js";
import { badge, empty, heading, loading, tone } from "../parts/ui.js";
import { nodeActions } from "../parts/actions.js";
import { share } from "./nodes.js";

/** bands returns nodes and their instances, in bands by the value of a label. */
const bands = live.derived(["instances", "nodes"], (label, text) => {
	const on = new Map();
	const waiting = [];
	for (const i of live.instances.values()) {
		if (i.state === "STOPPED" || i.state === "CRASHED") continue;
		if (!i.node || !live.nodes.has(i.node)) waiting.push(i);
		else if (on.has(i.node)) on.get(i.node).push(i);
		else on.set(i.node, [i]);
	}
	for (const list of on.values()) list.sort((a, b) => (a.group < b.group ? -1 : a.group > b.group ? 1 : compare(a.id, b.id)));
	const result = new Map();
	const words = text.toLowerCase();
	const nodes = [...live.nodes.values()].sort((a, b) => compare(a.id, b.id));
	for (const node of nodes) {
		const instances = on.get(node.id) ?? [];
		if (words && !node.id.toLowerCase().includes(words) && !instances.some((i) => i.group.toLowerCase().includes(words) || i.id.toLowerCase().includes(words))) continue;
		const value = label ? (node.labels?.[label] ?? "") : "";
		if (!result.has(value)) result.set(value, []);
		result.get(value).push({ node, instances });
	}
	return { list: [...result].sort((a, b) => (a[0] < b[0] ? -1 : 1)), waiting };
});

const labels = live.derived(["nodes"], () => [...new Set([...live.nodes.values()].flatMap((n) => Object.keys(n.labels ?? {})))].sort());

/** crowded is the number of nodes from which boxes are small and show no single instances. */
const crowded = 60;

export default class Topology {
	view() {
		if (!live.state.loaded) return loading();
		const q = route().query, label = q.get("by") ?? "", text = q.get("q") ?? "";
		const { list, waiting } = bands(label, text);
		const count = list.reduce((n, [, nodes]) => n + nodes.length, 0);
		const small = count > crowded;
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.topology")),
			h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("topology.filter"), value: text, oninput: (ev) => setQuery({ q: ev.target.value }) }), h("select", { "aria-label": t("topology.by"), value: label, onchange: (ev) => setQuery({ by: ev.target.value }) }, h("option", { value: "" }, t("topology.ungrouped")), labels().map((l) => h("option", { value: l, selected: l === label }, t("topology.byLabel", { label: visible(l) })))), h("span", { class: "muted" }, t("nodes.count", { count }))),
			waiting.length ? h("section", { class: "band" }, h("h2", null, t("topology.waiting", { count: waiting.length })), h("div", { class: "chips" }, waiting.slice(0, 200).map((i) => chip(i)))) : null,
			count === 0 ? empty(live.nodes.size ? t("list.none") : t("nodes.none"), live.nodes.size ? t("list.none.text") : t("begin.node")) : null,
			list.map(([value, nodes]) => h("section", { class: "band", key: value }, label ? h("h2", null, visible(value || t("topology.unlabelled")), h("span", { class: "muted" }, " · " + t("nodes.count", { count: nodes.length }) + " · " + t("instances.count", { count: nodes.reduce((n, x) => n + x.instances.length, 0) }))) : null, h("div", { class: "boxes" + (small ? " small" : "") }, nodes.map((x) => (small ? dense(x) : box(x)))))),
			count ? h("p", { class: "muted small" }, t("topology.legend")) : null,
		);
	}
}

function box({ node, instances }) {
	return h(
		"article",
		{ class: "nodebox " + tone(node.status), key: node.id },
		h("header", { class: "row apart" }, h("a", { href: link(["nodes", node.id]) }, h("strong", null, visible(node.id))), badge(node.status)),
		fill(node, instances),
		h("div", { class: "row apart muted small" }, h("span", null, t("nodes.reserved", { used: mib(node.reserved?.memoryMb), all: mib(node.effectiveCapacity?.memoryMb) })), h("span", null, t("topology.cpu", { cpu: percent(node.cpuUsage) }))),
		h("div", { class: "chips" }, instances.slice(0, 60).map(chip), instances.length > 60 ? h("a", { class: "tag", href: link(["nodes", node.id]) }, "+" + number(instances.length - 60)) : null),
		h("div", { class: "row" }, nodeActions(node, true)),
	);
}

/** fill draws the memory of a node: one part for each instance, in the colour of its state. */
function fill(node, instances) {
	const all = node.effectiveCapacity?.memoryMb || 1;
	const parts = instances.length > 40 ? [] : instances;
	return h("div", { class: "fill", role: "img", "aria-label": t("topology.fill", { share: percent(share(node)) }) }, parts.length ? parts.map((i) => h("i", { key: i.uid, class: tone(live.stateOf(i)), title: i.id + " · " + t("state." + live.stateOf(i)) + " · " + mib(i.memoryMb), style: { width: Math.max(0.4, (100 * (i.memoryMb ?? 0)) / all) + "%" } })) : h("i", { class: "good", style: { width: Math.min(100, 100 * share(node)) + "%" } }));
}

function dense({ node, instances }) {
	const bad = instances.filter((i) => tone(live.stateOf(i)) !== "good").length;
	return h("a", { class: "nodebox " + tone(node.status), key: node.id, href: link(["nodes", node.id]), title: node.id + " · " + t("state." + node.status) + " · " + t("instances.count", { count: instances.length }) }, h("strong", null, visible(node.id)), h("div", { class: "fill" }, h("i", { class: "good", style: { width: Math.min(100, 100 * share(node)) + "%" } })), h("span", { class: "muted small" }, number(instances.length) + (bad ? " · " + t("topology.notRunning", { count: bad }) : "")));
}

function chip(i) {
	return h("a", { key: i.uid, class: "chip " + tone(live.stateOf(i)), href: link(["instances", i.uid]), title: i.id + " · " + t("state." + live.stateOf(i)) + (i.message ? " · " + i.message : "") }, visible(i.id));
}
