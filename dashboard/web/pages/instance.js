// One instance: its console, measurements, files, and why it is where it is.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { cores, mib, number, time, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { Backups } from "../parts/backups.js";
import { Chart } from "../parts/chart.js";
import { Console } from "../parts/console.js";
import { Files } from "../parts/files.js";
import { causeOf, describeAudit, describeEvent, eventTone } from "../parts/describe.js";
import { age, badge, button, card, empty, facts, failure, heading, loading, Resource, tabs } from "../parts/ui.js";
import { fieldChanges, instanceActions } from "../parts/actions.js";
import { copy } from "../parts/transfer.js";
import { uptime } from "./instances.js";

/** @type {[string, (v: any) => string, number][]} */
const charts = [["usedCpu", cores, 1], ["usedMemoryMb", mib, 2], ["heapUsedMb", mib, 2], ["playerCount", number, 4], ["tps1m", (v) => (v === null || v === undefined ? "–" : v.toFixed(1)), 3], ["msptAvg", (v) => (v === null || v === undefined ? "–" : v.toFixed(1) + " ms"), 5], ["usedDiskMb", mib, 3]];

export default class Instance {
	constructor({ path }) {
		this.name = path[1];
		this.own = new Resource(() => api.get(api.url`/api/v1/services/${this.name}`));
		this.resources = /** @type {Record<string, Resource>} */ ({});
		this.timer = 0;
		/** shown names the resource with the measurements on show. */
		this.shown = "";
		/** uid is that of the instance that the resources are of. */
		this.uid = "";
		this.end = live.subscribe((e) => {
			const i = this.find();
			if (!i || e.uid !== i.uid || e.type === "INSTANCE_METRICS") return;
			this.own.reload();
			for (const r of Object.values(this.resources)) r.reload();
		});
	}

	removed() {
		this.end();
		clearInterval(this.timer);
	}

	/** find returns the live record, or the one that was read for this page. */
	find() {
		return live.instances.get(this.name) ?? [...live.instances.values()].findLast((i) => i.id === this.name) ?? this.own.data;
	}

	resource(name, read) {
		return (this.resources[name] ??= new Resource(read));
	}

	view() {
		const i = this.find();
		if (!i) return this.own.error ? failure(this.own.error, () => this.own.reload()) : loading();
		if (this.own.error?.status === 404 && !live.instances.has(i.uid)) return h("div", { class: "page" }, heading(visible(i.id), { crumbs: [[t("nav.instances"), "#/instances"]] }), empty(t("instance.gone"), t("instance.gone.text"), h("a", { class: "button", href: link(["groups", i.group]) }, visible(i.group))));
		if (this.uid !== i.uid) {
			// Another instance has the name now.
			if (this.uid) this.own.reload();
			this.uid = i.uid;
			this.resources = {};
		}
		const path = api.url`/api/v1/services/${i.uid}`;
		const wanted = route().query.get("tab") ?? "", group = live.groups.get(i.group);
		// Only static instances have backups. Readers who do not see the group learn that from the server.
		const keepsData = group ? group.static : live.state.loaded || wanted === "backups";
		const known = ["console", "explain", "metrics", "files", "backups", "built", "history"].filter((tab) => ({ console: live.allowedIn("instances.console", i.group), files: live.allowedIn("instances.files", i.group), backups: keepsData && live.allowedIn("backups.view", i.group) })[tab] ?? true);
		const tab = known.includes(wanted) ? wanted : known[0];
		if (tab !== "console" && tab !== "metrics") this.shown = "";
		return h(
			"div",
			{ class: "page" },
			heading(visible(i.id), { crumbs: [[t("nav.instances"), "#/instances"]], actions: instanceActions(i), under: h("div", { class: "row" }, badge(live.stateOf(i)), i.frozen ? h("span", { class: "badge warn" }, t("instance.frozen")) : null, i.warm ? h("span", { class: "tag" }, t("instance.warm")) : null, i.message ? h("span", { class: "muted" }, visible(i.message)) : null) }),
			this.ended(i),
			tabs(known.map((id) => ({ id, label: t("instance.tab." + id), href: link(["instances", this.name], { tab: id }) })), tab),
			tab === "console" ? h("div", { class: "with-side" }, this.console(i), h("div", { class: "page" }, this.sparks(i, path), this.facts(i))) : [tab === "explain" || tab === "history" ? this.facts(i) : null, this[tab](i, path)],
		);
	}

	/** ended says what came after an instance that ended. */
	ended(i) {
		if (!live.hasEnded(i) || live.groups.get(i.group)?.static) return null;
		const next = [...live.instances.values()].find((x) => x.id === i.id && !live.hasEnded(x));
		const to = next ? h("a", { href: link(["instances", next.uid]) }, visible(next.id)) : h("a", { href: link(["groups", i.group]) }, visible(i.group));
		return h("div", { class: "notice" }, h("p", null, t(next ? "instance.ended.next" : "instance.ended"), " ", to));
	}

	facts(i) {
		return card(null, null, facts(
				[t("instances.group"), h("a", { href: link(["groups", i.group]) }, visible(i.group))],
				[t("instances.node"), i.node ? h("a", { href: link(["nodes", i.node]) }, visible(i.node)) : "–"],
				[t("instance.address"), i.port ? h("span", null, h("code", null, (i.hostAddress || "") + ":" + i.port), i.hostAddress ? button({ label: t("action.copy"), icon: "copy", hideLabel: true, kind: "quiet small", onclick: () => copy(i.hostAddress + ":" + i.port) }) : null) : "–"],
				[t("instances.players"), i.playerCount === null || i.playerCount === undefined ? t("unknown") : number(i.playerCount) + (i.maxPlayers ? " / " + i.maxPlayers : "")],
				[t("instances.uptime"), uptime(i)],
				[t("instances.memory"), (i.usedMemoryMb ? mib(i.usedMemoryMb) + " / " : "") + mib(i.memoryMb)],
				[t("instance.pid"), i.pid || "–"],
				[t("instances.restarts"), number(i.restarts)],
				i.exitCode !== null && i.exitCode !== undefined ? [t("instance.exit"), i.exitCode] : null,
				[t("instance.uid"), h("code", null, i.uid)],
			));
	}

	console(i) {
		return h(Console, { key: i.uid, instance: i });
	}

	explain(i, path) {
		return this.resource("explain", () => api.get(path + "/explain")).show((x) =>
			h(
				"div",
				{ class: "grid wide" },
				card(t("explain.chain"), null, h("ol", { class: "timeline" }, x.chain.map((s) => h("li", null, h("strong", null, t("explain." + s.step) === "explain." + s.step ? s.step : t("explain." + s.step)), " ", h("span", null, visible(s.message)), h("div", { class: "muted small" }, s.at ? age(s.at) : "", s.by ? " · " + visible(s.by) : "", s.revision ? " · " + t("explain.revision", { revision: s.revision }) : ""))))),
				x.pending ? this.pending(x.pending) : null,
				x.placement ? this.placement(x.placement) : null,
			),
		);
	}

	pending(p) {
		return card(t("explain.pending"), null, p.message ? h("p", null, visible(p.message)) : null, lostNodes(p.lost), p.best?.length ? candidates(p.best) : null, p.note ? h("p", { class: "muted small" }, visible(p.note)) : null);
	}

	placement(p) {
		const parts = Object.entries(p.score ?? {}).filter(([k]) => k !== "total");
		return card(
			t("explain.placement"),
			null,
			h("p", null, t("explain.node", { node: visible(p.node) }), " ", p.at ? age(p.at) : null),
			h("table", { class: "small" }, h("thead", null, h("tr", null, h("th", null, t("explain.part")), h("th", { class: "right" }, t("explain.then")), p.now?.here ? h("th", { class: "right" }, t("explain.today")) : null)), h("tbody", null, parts.map(([k, v]) => h("tr", null, h("td", null, visible(k)), h("td", { class: "right" }, v), p.now?.here ? h("td", { class: "right" }, p.now.here.score?.[k] ?? "–") : null)), h("tr", null, h("td", null, h("strong", null, t("explain.total"))), h("td", { class: "right" }, h("strong", null, p.score?.total ?? "–")), p.now?.here ? h("td", { class: "right" }, h("strong", null, p.now.here.score?.total ?? "–")) : null))),
			p.now?.here ? h("p", { class: "muted small" }, t("explain.rank", { rank: p.now.here.rank, nodes: p.now.nodes })) : null,
			p.now?.lost?.length ? lostNodes(p.now.lost) : null,
		);
	}

	/** measured returns the measurements of a window, which are read again each minute while they are shown. */
	measured(window, path) {
		if (this.shown !== "metrics " + window) this.resources["metrics " + window]?.reload();
		this.shown = "metrics " + window;
		this.timer ||= setInterval(() => document.hidden || this.resources[this.shown]?.reload(), 60000);
		return this.resource(this.shown, () => api.get(path + "/metrics/timeseries", { window, buckets: 120 }));
	}

	/** sparks draws the last minutes beside the console. */
	sparks(i, path) {
		const d = this.measured("15m", path).data;
		const lines = d ? charts.slice(0, 4).filter(([name]) => d.series[name]?.some((v) => v !== null)) : [];
		if (lines.length === 0) return null;
		return card(null, { class: "sparks" }, lines.map(([name, format, color]) => {
			const values = live.hasEnded(i) ? d.series[name] : [...d.series[name].slice(0, -1), i[name] === undefined ? d.series[name].at(-1) : i[name]];
			return h("div", { key: name }, h("div", { class: "row" }, h("span", { class: "muted small grow" }, t("metrics." + name)), h("strong", { class: "small" }, format(values.at(-1)))), h(Chart, { small: true, format, label: t("metrics.recent"), series: [{ name: t("metrics." + name), values, color }] }));
		}));
	}

	metrics(i, path) {
		const window = route().query.get("window") ?? "1h";
		const r = this.measured(window, path);
		return h(
			"div",
			{ class: "page" },
			h("div", { class: "row", role: "group", "aria-label": t("metrics.window") }, ["15m", "1h", "6h", "24h"].map((w) => button({ label: w.replace("m", " min").replace("h", " h"), kind: "small", pressed: w === window, onclick: () => setQuery({ window: w }) }))),
			r.show((d) => {
				const any = charts.filter(([name]) => (d.series[name] ?? []).some((v) => v !== null));
				if (any.length === 0) return empty(t("metrics.none"), t("metrics.none.text"));
				return h("div", { class: "grid" }, any.map(([name, format, color]) => card(t("metrics." + name), null, h(Chart, { label: t("metrics." + name), from: d.startedAtMs, step: d.bucketWidthMs, format, series: [{ name: t("metrics." + name), values: d.series[name], color }] }))));
			}),
		);
	}

	files(i) {
		return h(Files, { key: i.uid, instance: i });
	}

	backups(i) {
		return h(Backups, { key: i.uid, instance: i });
	}

	built(i, path) {
		return this.resource("built", () => api.get(path + "/composition")).show((c) =>
			h(
				"div",
				{ class: "grid wide" },
				card(t("built.layers"), null, h("ul", { class: "plain" }, c.layers.map((l) => h("li", null, h("a", { class: "grow", href: link(["templates", l.group ? l.group + "/" + l.name : l.name]) }, visible(l.group ? l.group + "/" + l.name : l.name)), h("code", { class: "small" }, l.hash.slice(0, 12)), h("span", { class: "muted small" }, t("built.files", { count: l.files }) + " · " + mib(l.sizeBytes / 1048576)))))),
				card(t("built.command"), null, h("pre", { class: "text" }, visible(c.command || "java … -jar " + c.runtime.jarFile)), facts([t("groups.runtime"), i.runtime], [t("built.revision"), c.groupRevision], [t("instances.memory"), mib(c.memoryMb)], [t("nodes.cores"), cores(c.cpu)])),
				card(t("built.env"), null, pairs(c.env), c.secrets?.length ? h("p", { class: "muted" }, t("built.secrets", { names: c.secrets.map((s) => visible(s.name ?? s)).join(", ") })) : null),
				card(t("built.variables"), null, pairs(c.variables)),
			),
		);
	}

	history(i) {
		const events = live.recent.filter((e) => e.uid === i.uid).slice(0, 100);
		const changes = this.resource("history", () => api.get(api.url`/api/v1/history/instance/${i.uid}`));
		const crashes = live.allowedIn("crashes.view", i.group) ? this.resource("crashes", () => api.get("/api/v1/crashes", { instance: i.uid, pageSize: 20 })) : null;
		return h(
			"div",
			{ class: "grid wide" },
			card(t("instance.events"), null, events.length === 0 ? h("p", { class: "muted" }, t("instance.events.none")) : h("ul", { class: "plain" }, events.map((e) => h("li", null, h("span", { class: "dot " + eventTone(e) }), h("span", { class: "grow" }, describeEvent(e)), age(e.timestamp))))),
			crashes ? card(t("nav.crashes"), null, crashes.show((p) => (p.data.length === 0 ? h("p", { class: "muted" }, t("instance.crashes.none")) : h("ul", { class: "plain" }, p.data.map((c) => h("li", null, h("a", { class: "grow", href: link(["crashes", c.id]) }, causeOf(c)), h("span", { class: "muted" }, c.exitCode === null ? visible(c.signal) : t("crash.code", { code: c.exitCode })), age(c.crashedAt))))))) : null,
			card(t("instance.changes"), null, changes.show((p) => (p.data.length === 0 ? h("p", { class: "muted" }, t("instance.changes.none")) : h("ul", { class: "plain" }, p.data.map((c) => h("li", null, h("span", { class: "grow" }, describeAudit({ username: c.by, action: c.action, details: c.details, result: "" }), c.diff?.length ? h("details", null, h("summary", null, t("history.diff", { count: c.diff.length })), fieldChanges(c.diff)) : null), h("span", { title: time(c.at) }, age(c.at)))))))),
		);
	}
}

/** lostNodes draws how many nodes each rule excludes, and what would make one fit. */
function lostNodes(list) {
	return h("ul", { class: "plain small" }, (list ?? []).map((l) => h("li", null, h("span", null, t("explain.excludes", { count: l.nodes, filter: visible(l.filter) })), l.fix ? h("span", { class: "grow muted" }, visible(l.fix)) : null)));
}

function candidates(list) {
	return h("div", null, h("h3", null, t("explain.best")), h("ul", { class: "plain small" }, list.map((c) => h("li", null, h("a", { href: link(["nodes", c.node]) }, visible(c.node)), h("span", { class: "grow muted" }, c.filter ? visible(c.filter) + (c.fix ? ": " + visible(c.fix) : "") : t("explain.score", { score: c.score?.total ?? "–" }))))));
}

function pairs(o) {
	const list = Object.entries(o ?? {});
	return list.length === 0 ? h("p", { class: "muted" }, t("built.none")) : h("div", { class: "scroll" }, h("table", { class: "small mono" }, h("tbody", null, list.map(([k, v]) => h("tr", null, h("th", null, visible(k)), h("td", null, visible(v)))))));
}

