// One group: how it is, its instances, its deployments, its settings and its history.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { hold, link, route } from "../core/router.js";
import { allowedEverywhere } from "../core/session.js";
import { cores, mib, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { age, attempt, badge, button, card, empty, facts, failure, field, heading, loading, Resource, say, tabs } from "../parts/ui.js";
import { deleteGroup, deploy, fieldChanges, groupDryRun, scale } from "../parts/actions.js";
import { ask, confirm } from "../parts/dialog.js";
import { deploymentCard } from "../parts/deployment.js";
import { textDiff } from "../parts/diff.js";
import { toYAML } from "../parts/yaml.js";
import { groupState } from "./groups.js";
import { Instances } from "./instances.js";

export default class Group {
	constructor({ path }) {
		this.name = path[1];
		this.path = api.url`/api/v1/groups/${this.name}`;
		this.resources = {};
		this.edit = /** @type {Editor | null} */ (null);
		this.end = live.subscribe((e) => {
			if ((e.groupName ?? e.group) !== this.name) return;
			if (e.type.startsWith("DEPLOYMENT_")) this.resources.deployments?.reload();
			if (e.type === "GROUP_UPDATED" || e.type === "GROUP_SCALED") this.resources.history?.reload();
		});
		this.release = hold(() => Boolean(this.edit?.changed()) && !window.confirm(t("group.leave")));
	}

	removed() {
		this.end();
		this.release();
	}

	resource(name, read) {
		return (this.resources[name] ??= new Resource(read));
	}

	view() {
		const g = live.groups.get(this.name);
		if (!live.state.loaded) return loading();
		if (!g) return h("div", { class: "page" }, heading(visible(this.name), { crumbs: [[t("nav.groups"), "#/groups"]] }), empty(t("group.gone"), t("group.gone.text"), h("a", { class: "button", href: "#/groups" }, t("nav.groups"))));
		const known = ["instances", "deployments", "scaling", "settings", "history"];
		const wanted = route().query.get("tab") ?? "";
		const tab = known.includes(wanted) ? wanted : "instances";
		return h(
			"div",
			{ class: "page" },
			heading(visible(g.name), { crumbs: [[t("nav.groups"), "#/groups"]], actions: this.actions(g), under: h("div", { class: "row" }, badge(groupState(g)), Object.entries(g.labels ?? {}).map(([k, v]) => h("span", { class: "tag" }, visible(k) + "=" + visible(v))), g.message && !g.crashLoop ? h("span", { class: "muted" }, visible(g.message)) : null) }),
			g.crashLoop ? h("div", { class: "notice bad", role: "alert" }, h("p", null, h("strong", null, t("group.loop")), " ", visible(g.crashLoop.message ?? "")), button({ label: t("group.loop.reset"), needs: "groups.update", onclick: () => attempt(() => api.post(this.path + "/crash-loop/reset"), t("group.loop.done")) })) : null,
			g.maintenance ? h("div", { class: "notice warn" }, t("group.maintenance"), g.maintenanceMessage ? " " + visible(g.maintenanceMessage) : "") : null,
			g.scaling?.missing ? h("div", { class: "notice warn" }, t("group.missing", { count: g.scaling.missing }), g.scaling.message ? " " + visible(g.scaling.message) : "", waitsFor(g.name).map((i) => h("p", null, h("a", { href: link(["instances", i.uid], { tab: "explain" }) }, visible(i.id)), " ", visible(i.message)))) : null,
			card(null, null, facts(
				[t("groups.instances"), h("span", null, h("strong", null, number(g.runningInstances)), h("span", { class: "muted" }, " · " + t("groups.bounds", { min: g.minInstances, max: g.maxInstances || "∞" })))],
				[t("groups.players"), number(g.totalPlayers) + (g.scaling?.slots ? " / " + number(g.scaling.slots) : "")],
				[t("group.each"), mib(g.memoryMb) + (g.cpu ? " · " + t("group.cpu", { cpu: cores(g.cpu) }) : "")],
				[t("group.held"), mib(g.held?.memoryMb)],
				[t("group.ports"), g.portRangeStart ? g.portRangeStart + "–" + g.portRangeEnd : "–"],
				[t("groups.templates"), g.templates?.length ? g.templates.map((n, i) => [i ? ", " : "", h("a", { href: link(["templates", n]) }, visible(n))]) : "–"],
				[t("group.runs"), h("code", null, visible(g.command || (g.platform + " " + g.jarFile)))],
				[t("groups.runtime"), g.runtime + (g.static ? " · " + t("groups.static") : "")],
			)),
			tabs(known.map((id) => ({ id, label: t("group.tab." + id), href: link(["groups", this.name], { tab: id }) })), tab),
			this[tab](g),
		);
	}

	actions(g) {
		return [
			button({ label: t("group.start"), needs: "groups.start", group: g.name, onclick: () => this.start(g) }),
			button({ label: t("groups.scale"), needs: "groups.update", group: g.name, disabled: g.scalingMode === "MANUAL", onclick: () => scale(g) }),
			button({ label: t("group.restart"), needs: "groups.update", group: g.name, onclick: () => confirm({ title: t("group.restart.title", { name: g.name }), text: h("p", null, t("group.restart.text")), label: t("group.restart"), preview: () => api.post(this.path + "/restart", undefined, { dryRun: true }), show: groupDryRun, act: () => api.post(this.path + "/restart") }) }),
			button({ label: t("groups.deploy"), kind: "primary", needs: "groups.update", group: g.name, onclick: () => deploy(g) }),
			allowedEverywhere("groups.update") ? button({ label: t(g.maintenance ? "group.maintenance.end" : "group.maintenance.begin"), onclick: () => this.maintain(!g.maintenance) }) : null,
			button({ label: t("action.delete"), kind: "danger", needs: "groups.delete", group: g.name, onclick: () => deleteGroup(g) }),
		];
	}

	maintain(maintenance) {
		return attempt(async () => {
			const done = await api.patch(this.path, { maintenance });
			say(t(maintenance ? "group.maintenance.began" : "group.maintenance.ended", { name: this.name }), { undo: () => attempt(() => api.patch(this.path, { maintenance: !maintenance }, { ifMatch: done.$etag }), t("undone")) });
		});
	}

	start(g) {
		const state = { count: "1" };
		return confirm({ title: t("group.start.title", { name: g.name }), label: t("group.start"), fields: (again) => h("div", null, field({ label: t("group.start.count"), name: "count", type: "number", min: "1", max: "50", required: true, value: state.count, autofocus: true, oninput: (v) => { state.count = v; again(); } }), h("p", { class: "muted" }, t("group.start.text"))), preview: () => api.post(this.path + "/start", { count: Number(state.count) }, { dryRun: true }), show: groupDryRun, act: async () => { const a = await api.post(this.path + "/start", { count: Number(state.count) }); say(a.message ? visible(a.message) : t("group.started", { count: a.count ?? state.count })); } });
	}

	instances() {
		return h(Instances, { group: this.name, without: ["group"] });
	}

	deployments() {
		return this.resource("deployments", () => api.get(this.path + "/deployments")).show((p) => (p.data.length === 0 ? empty(t("deployments.none"), t("deployments.none.text")) : h("div", { class: "page" }, p.data.map((d) => deploymentCard(d, () => this.resources.deployments.reload())))));
	}

	scaling(g) {
		const s = g.scaling ?? {};
		return h(
			"div",
			{ class: "grid wide" },
			card(t("group.scaling"), null, facts([t("group.scaling.mode"), g.scalingMode], [t("group.scaling.target"), number(s.target)], [t("group.scaling.slots"), number(s.slots)], [t("group.scaling.threshold"), Math.round((g.scaleUpThreshold ?? 0) * 100) + " %"], [t("group.scaling.cooldown"), s.cooldownUntil ? age(s.cooldownUntil) : "–"], [t("group.scaling.held"), s.heldBy ? visible(typeof s.heldBy === "string" ? s.heldBy : JSON.stringify(s.heldBy)) : "–"]), s.message ? h("p", null, visible(s.message)) : null, s.last ? h("p", { class: "muted" }, t("group.scaling.last", { from: s.last.from, to: s.last.to }), " ", visible(s.last.message ?? s.last.reason ?? "")) : null),
			card(t("group.policies"), null, g.scalingPolicies?.length ? h("ul", { class: "plain" }, g.scalingPolicies.map((p) => h("li", null, h("strong", null, visible(p.name ?? p.type)), h("code", { class: "grow small" }, visible(JSON.stringify(p)))))) : h("p", { class: "muted" }, t("group.policies.none"))),
		);
	}

	settings() {
		this.edit ??= new Editor(this.path, this.name);
		return this.edit.view();
	}

	history(g) {
		return this.resource("history", () => api.get(api.url`/api/v1/history/group/${g.name}`, { pageSize: 100 })).show((p) =>
			h("div", { class: "card" }, h("ul", { class: "plain" }, p.data.map((c) => h(
				"li",
				{ key: c.id },
				h("span", { class: "grow" }, h("strong", null, visible(c.by)), " ", h("span", { class: "mono small" }, c.action), " ", h("span", { class: "muted" }, visible(c.details)), c.diff?.length ? h("details", null, h("summary", null, t("history.diff", { count: c.diff.length })), fieldChanges(c.diff)) : null),
				age(c.at),
				button({ label: t("history.then"), kind: "small quiet", onclick: () => this.then(c) }),
			)))),
		);
	}

	/** then shows the group as it was after a change. */
	async then(c) {
		const at = await attempt(() => api.get(api.url`/api/v1/history/group/${this.name}`, { at: c.at }));
		if (!at) return;
		const object = at.object ?? at.state ?? at.value ?? at;

		await ask(t("history.then.title", { name: this.name }), () => h("div", { class: "dialog-body" }, h("p", { class: "muted" }, age(c.at)), h("pre", { class: "text" }, visible(toYAML(object)))), { wide: true });
	}
}

/** waitsFor returns an instance of a group that no node takes, for each reason. */
function waitsFor(group) {
	const waiting = [...live.instances.values()].filter((i) => i.group === group && live.waits(i) && i.message);
	return waiting.filter((i, n) => waiting.findIndex((x) => x.message === i.message) === n).slice(0, 3);
}

/** computed is fields that the server computes. They cannot be written. */
const computed = new Set(["revision", "createdAt", "updatedAt", "paused", "crashLoop", "scaling", "held", "message", "runningInstances", "totalPlayers", "runtimeTarget", "reserved"]);

/** Editor edits the settings of a group, as a form of the usual fields or as YAML with all fields. */
class Editor {
	constructor(path, name) {
		this.path = path;
		this.name = name;
		this.mode = "form";
		this.group = /** @type {any} */ (null);
		this.error = /** @type {any} */ (null);
		this.saving = false;
		this.theirs = /** @type {any} */ (null);
		this.refused = /** @type {any} */ (null);
		this.values = /** @type {Record<string, any>} */ ({});
		/** numbers is the names of values that are numbers. One that is empty is not 0. */
		this.numbers = /** @type {Set<string>} */ (new Set());
		this.text = "";
		this.saved = "";
		this.load();
	}

	async load() {
		this.refused = null;
		try {
			this.group = await api.get(this.path);
			this.etag = this.group.$etag;
			this.values = {};
			this.text = this.saved = toYAML(writable(this.group));
			this.error = null;
			this.theirs = null;
		} catch (err) {
			this.error = err;
		}
		redraw();
	}

	changed() {
		return this.text !== this.saved || Object.keys(this.values).length > 0;
	}

	isMissing(name) {
		return this.numbers.has(name) && this.values[name] === "";
	}

	/** isComplete reports whether there is something to save, and no number is missing. */
	isComplete() {
		return this.changed() && !Object.keys(this.values).some((name) => this.isMissing(name));
	}

	/** request sends what was edited: changed fields of the form, or the whole text. */
	request(dryRun) {
		this.refused = null;
		const o = { dryRun, ifMatch: this.etag };
		if (this.mode === "form") return api.patch(this.path, this.values, o);
		return api.putText(this.path, this.text, "application/yaml", o);
	}

	/** save shows what the change would do, and saves it. */
	async save() {
		try {
			const answer = await this.request(true);
			await confirm({ title: t("group.save.title", { name: this.name }), label: t("action.save"), preview: async () => answer, show: groupDryRun, act: () => this.write() });
		} catch (err) {
			if (err.status === 412) this.theirs = await api.get(this.path).catch(() => null);
			if (!this.theirs) this.refused = err;
		}
		redraw();
	}

	async write() {
		const before = this.group;
		const ifMatch = (await this.request(false)).$etag;
		await this.load();
		say(t("group.saved"), { undo: () => attempt(() => api.put(this.path, writable(before), { ifMatch }), t("undone")).then(() => this.load()) });
	}

	view() {
		if (!this.group) return this.error ? failure(this.error, () => this.load()) : loading();
		const may = allowedEverywhere("groups.update");
		return h(
			"div",
			{ class: "card" },
			h(
				"div",
				{ class: "row apart" },
				h("div", { class: "row", role: "group", "aria-label": t("group.edit.as") }, button({ label: t("group.form"), pressed: this.mode === "form", disabled: this.text !== this.saved, title: this.text !== this.saved ? t("group.edit.first") : undefined, onclick: () => { this.mode = "form"; } }), button({ label: "YAML", pressed: this.mode === "yaml", disabled: Object.keys(this.values).length > 0, title: Object.keys(this.values).length ? t("group.edit.first") : undefined, onclick: () => { this.mode = "yaml"; } })),
				h("div", { class: "row" }, this.changed() ? h("span", { class: "badge warn" }, t("files.changed")) : null, button({ label: t("group.discard"), disabled: !this.changed(), onclick: () => this.load() }), may ? button({ label: t("group.review"), kind: "primary", disabled: !this.isComplete(), onclick: () => this.save() }) : null),
			),
			this.theirs ? this.conflict() : null,
			this.refused ? failure(this.refused) : null,
			this.mode === "form" ? this.form(may) : h("textarea", { class: "mono editor", "aria-label": t("group.yaml"), spellcheck: "false", rows: "34", readonly: !may, value: this.text, oninput: (ev) => { this.text = ev.target.value; } }),
			h("p", { class: "muted small" }, t("group.settings.text")),
		);
	}

	conflict() {
		const was = writable(this.group), is = writable(this.theirs), theirs = toYAML(is);
		const changed = [...new Set([...Object.keys(was), ...Object.keys(is)])].filter((k) => JSON.stringify(was[k]) !== JSON.stringify(is[k])).map((k) => ({ field: k, from: was[k], to: is[k] }));
		const mine = this.mode === "yaml" ? this.text : toYAML({ ...writable(this.theirs), ...this.values }); // the form sends only what was changed
		return h("div", { class: "notice warn", role: "alert" }, h("p", null, h("strong", null, t("failure.412"))), h("div", { class: "full-width" }, h("h3", null, t("group.conflict.theirs")), fieldChanges(changed), h("h3", null, t("group.conflict.diff")), textDiff(theirs, mine)), h("div", { class: "row" }, button({ label: t("files.takeTheirs"), onclick: () => this.load() }), button({ label: t("group.conflict.mine"), kind: "danger", onclick: () => { this.etag = this.theirs.$etag; this.theirs = null; return this.save(); } })));
	}

	form(may) {
		const g = this.group;
		const set = (name, v) => {
			if (JSON.stringify(v) === JSON.stringify(g[name])) delete this.values[name];
			else this.values[name] = v;
		};
		const of = (name) => (name in this.values ? this.values[name] : g[name]);
		const text = (name, o = {}) => field({ label: t("field." + name), name, value: of(name) ?? "", disabled: !may, oninput: (v) => set(name, v), ...o });
		const count = (name, o = {}) => field({ label: t("field." + name), name, type: "number", min: "0", required: true, value: of(name) ?? 0, error: this.isMissing(name) ? t("field.number") : undefined, disabled: !may, oninput: (v) => { this.numbers.add(name); set(name, v === "" ? "" : Number(v)); }, ...o });
		const check = (name) => field({ label: t("field." + name), name, type: "checkbox", value: of(name), disabled: !may, oninput: (v) => set(name, v) });
		const list = (name, o = {}) => field({ label: t("field." + name), name, rows: 3, value: (of(name) ?? []).join("\n"), disabled: !may, hint: t("field.lines"), oninput: (v) => set(name, v.split("\n").map((x) => x.trim()).filter(Boolean)), ...o });
		const choice = (name, options) => field({ label: t("field." + name), name, value: of(name), disabled: !may, options: options.map((x) => [x, x || "–"]), oninput: (v) => set(name, v) });
		const part = (name, ...fields) => h("fieldset", null, h("legend", null, t("group.part." + name)), h("div", { class: "form" }, fields));
		return h(
			"form",
			{ class: "parts", onsubmit: (ev) => { ev.preventDefault(); if (this.isComplete()) return this.save(); } },
			part("run", text("command", { hint: t("newgroup.command.hint") }), text("jarFile"), text("platform"), choice("runtime", ["process", "tmux", "screen", "docker"]), text("stopCommand"), count("shutdownGraceSeconds")),
			part("scale", count("minInstances"), count("maxInstances", { hint: t("field.maxInstances.hint") }), choice("scalingMode", ["DYNAMIC", "STATIC", "MANUAL"]), count("maxPlayers"), count("sleepAfterEmptySeconds"), count("warmPoolMinPrepared")),
			part("resources", count("memoryMb", { min: "1" }), count("cpu", { hint: t("field.cpu.hint") }), count("cpuLimit", { hint: t("field.cpu.hint") }), count("portRangeStart"), count("portRangeEnd")),
			part("place", list("nodes"), choice("placementProfile", ["balanced", "spread", "pack", ""].filter((x, i, all) => all.indexOf(x) === i && (x || g.placementProfile === ""))), count("priority"), check("exclusiveNode"), check("rebalance")),
			part("files", list("templates"), list("fileModifications"), check("static")),
			part("fail", choice("onCrash", ["replace", "restart", "nothing"].includes(g.onCrash) ? ["replace", "restart", "nothing"] : [g.onCrash, "replace", "restart"]), count("startupTimeoutSeconds"), count("maxLifetimeSeconds"), choice("updateStrategy", ["ROLLING", "CANARY", "BLUE_GREEN"])),
			h("input", { type: "submit", class: "hidden", tabindex: "-1", "aria-hidden": "true", value: "" }),
		);
	}
}

function writable(g) {
	return Object.fromEntries(Object.entries(g).filter(([k]) => !computed.has(k)));
}
