// Schedules run an action at times. Overlays change groups during windows of time.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { duration, number, time, visible } from "../core/format.js";
import { language, t } from "../core/text.js";
import { fieldChanges } from "../parts/actions.js";
import { pauseFields, pauseLines } from "../parts/backups.js";
import { dueTimes } from "../parts/cron.js";
import { confirm } from "../parts/dialog.js";
import { changed, reloadOn } from "../parts/follow.js";
import { askForm, groupBoxes, list } from "../parts/form.js";
import { List, sorted } from "../parts/list.js";
import { age, attempt, button, card, empty, facts, field, heading, Resource, say, tabs } from "../parts/ui.js";

const actions = ["command", "restart", "start", "stop", "backup"];
const nodeActions = ["drain", "undrain"];
const zones = Intl.supportedValuesOf?.("timeZone") ?? [];
const tones = { COMPLETED: "good", FAILED: "bad", INTERRUPTED: "bad", MISSED: "warn", SKIPPED: "warn", CANCELED: "idle" };

/**
 * pick returns the named fields of an object.
 * @returns {any}
 */
const pick = (o, names) => Object.fromEntries(names.map((n) => [n, o[n]]));
const scheduleFields = ["description", "group", "instance", "node", "action", "command", "count", "drain", "backup", "cron", "timezone", "warnings", "jitterSeconds", "overlap", "enabled"];
const overlayFields = ["description", "groups", "selector", "cron", "durationSeconds", "from", "until", "timezone", "overlay", "enabled"];

export default class Schedules {
	constructor() {
		this.schedules = new Resource(() => api.all("/api/v1/schedules"));
		this.overlays = new Resource(() => api.all("/api/v1/overlays"));
		/** @type {Map<string, Resource>} */
		this.runs = new Map();
		this.end = reloadOn((e) => changed("schedule", "overlay")(e) || e.type.startsWith("SCHEDULE_") || e.type.startsWith("CHOREOGRAPHY_"), () => {
			this.schedules.reload();
			this.overlays.reload();
			for (const r of this.runs.values()) r.reload();
		});
	}

	removed() {
		this.end();
	}

	view() {
		const wanted = route().query.get("tab") ?? "schedules", tab = ["overlays", "calendar"].includes(wanted) ? wanted : "schedules";
		return h("div", { class: "page" },
			heading(t("nav.schedules"), { under: h("p", { class: "muted" }, t("schedules.about")), actions: [button({ label: t("overlays.new"), needs: "groups.update", onclick: () => this.editOverlay(null) }), button({ label: t("schedules.new"), icon: "plus", kind: "primary", needs: "groups.update", onclick: () => this.editSchedule(null) })] }),
			tabs(["schedules", "overlays", "calendar"].map((id) => ({ id, label: t("schedules.tab." + id), href: link(["schedules"], { tab: id === "schedules" ? "" : id }) })), tab),
			tab === "overlays" ? this.showOverlays() : tab === "calendar" ? this.showCalendar() : this.showSchedules(),
		);
	}

	// Schedules

	showSchedules() {
		return this.schedules.show((all) => {
			if (all.length === 0) return empty(t("schedules.none"), t("schedules.none.text"), button({ label: t("schedules.new"), icon: "plus", kind: "primary", needs: "groups.update", onclick: () => this.editSchedule(null) }));
			const query = route().query, q = (query.get("q") ?? "").toLowerCase(), name = query.get("schedule"), by = { column: query.get("sort") ?? "name", descending: query.get("order") === "desc" };
			const columns = [
				{ id: "name", label: t("users.name"), width: "minmax(8rem,1.3fr)", sort: (s) => s.name, cell: (s) => visible(s.name) },
				{ id: "action", label: t("schedules.action"), width: "minmax(8rem,1fr)", sort: (s) => s.action, cell: (s) => t("schedules.action." + s.action) + " " + visible(target(s)) },
				{ id: "next", label: t("schedules.next"), width: "9rem", sort: (s) => Date.parse(s.nextRun ?? "") || 1e15, cell: (s) => (s.running ? h("span", { class: "badge busy" }, t("schedules.running")) : s.enabled ? age(s.nextRun) : h("span", { class: "badge idle" }, t("schedules.disabled"))) },
				...(name ? [] : [
					{ id: "cron", label: t("schedules.cron"), width: "minmax(8rem,1fr)", wide: true, cell: (s) => h("span", { class: "mono" }, visible(s.cron)) },
					{ id: "last", label: t("schedules.last"), width: "minmax(9rem,1fr)", wide: true, cell: (s) => (s.lastRun ? [result(s.lastRun), " ", age(s.lastRun.endedAt)] : "–") },
				]),
			];
			const rows = sorted(all.filter((s) => (s.name + " " + s.description + " " + target(s)).toLowerCase().includes(q)), columns, by);
			const s = name ? all.find((x) => x.name === name) : null;
			return h("div", { class: "page" },
				h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("filter"), value: query.get("q") ?? "", oninput: (ev) => setQuery({ q: ev.target.value }) })),
				h("div", { class: name ? "beside" : "" },
					h(List, { rows, columns, id: (x) => x.name, href: (x) => link(["schedules"], { ...Object.fromEntries(query), schedule: x.name }), sort: by, onsort: (column, descending) => setQuery({ sort: column, order: descending ? "desc" : "" }), label: t("nav.schedules"), none: empty(t("list.none"), t("list.none.text"), button({ label: t("list.clear"), onclick: () => setQuery({ q: "" }) })) }),
					name ? this.showSchedule(name, s) : null),
			);
		});
	}

	showSchedule(name, s) {
		const close = button({ label: t("action.close"), icon: "close", hideLabel: true, kind: "quiet", onclick: () => setQuery({ schedule: "" }) });
		if (!s) return card(visible(name), { actions: close, class: "aside" }, h("p", { class: "muted" }, t("failure.404")));
		if (!this.runs.has(name)) this.runs.set(name, new Resource(() => api.all(api.url`/api/v1/schedules/${name}/history`)));
		return card(visible(name), { actions: close, class: "aside", key: name },
			s.description ? h("p", { class: "muted" }, visible(s.description)) : null,
			facts(
				[t("schedules.action"), t("schedules.action." + s.action)],
				[t("schedules.target"), s.group ? h("a", { href: link(["groups", s.group]) }, visible(s.group)) : s.node ? h("a", { href: link(["nodes", s.node]) }, visible(s.node)) : visible(s.instance)],
				[t("schedules.cron"), h("span", { class: "mono" }, visible(s.cron))],
				[t("schedules.zone"), visible(s.timezone)],
				[t("schedules.next"), s.nextRun ? [time(s.nextRun), " (", age(s.nextRun), ")"] : t("schedules.disabled")],
				s.queuedRun ? [t("schedules.queued"), age(s.queuedRun)] : null,
				s.action === "start" && s.count ? [t("schedules.count"), number(s.count)] : null,
				s.backup ? [t("schedules.backup.keep"), s.backup.keep ? number(s.backup.keep) : t("schedules.backup.keep.all")] : null,
				s.backup?.until ? [t("backups.until"), h("span", { class: "mono" }, visible(s.backup.until))] : null,
			),
			s.command ? h("pre", { class: "text wrap", tabindex: "0" }, visible(s.command)) : null,
			s.backup ? ["before", "after"].filter((k) => s.backup[k].length).map((k) => h("div", null, h("h3", null, t("backups." + k)), h("pre", { class: "text wrap", tabindex: "0" }, visible(s.backup[k].join("\n"))))) : null,
			s.warnings?.length ? h("div", null, h("h3", null, t("schedules.warnings")), h("ul", { class: "plain" }, s.warnings.map((w) => h("li", null, h("span", { class: "nowrap" }, t("schedules.before", { duration: duration(w.beforeSeconds * 1000) })), h("span", { class: "mono grow" }, visible(w.command)))))) : null,
			h("div", { class: "row" },
				button({ label: t("schedules.run"), kind: "primary", needs: "groups.update", disabled: Boolean(s.running), onclick: () => this.run(s) }),
				button({ label: s.enabled ? t("schedules.disable") : t("schedules.enable"), needs: "groups.update", onclick: () => this.enable("schedules", s, this.schedules) }),
				button({ label: t("action.edit"), needs: "groups.update", onclick: () => this.editSchedule(s) }),
				button({ label: t("action.delete"), kind: "danger", needs: "groups.update", onclick: () => this.remove("schedules", s, scheduleFields, this.schedules) })),
			h("h3", null, t("schedules.history")),
			s.running ? h("ul", { class: "plain" }, run(s.running)) : null,
			this.runs.get(name)?.show((all) => (all.length === 0 ? h("p", { class: "muted" }, t("schedules.history.none")) : h("ul", { class: "plain" }, all.map((r) => run(r))))),
		);
	}

	run(s) {
		const f = { warn: false };
		const post = (dryRun) => api.post(api.url`/api/v1/schedules/${s.name}/run`, { warn: f.warn }, { dryRun });
		return confirm({ title: t("schedules.run.title", { name: s.name }), label: t("schedules.run"), danger: !["start", "undrain", "backup"].includes(s.action),
			fields: (again) => (s.warnings?.length ? field({ label: t("schedules.warn"), name: "warn", type: "checkbox", value: f.warn, oninput: (v) => { f.warn = v; again(); } }) : null),
			preview: () => post(true), show: (x) => steps(x.run.steps),
			act: async () => {
				await post(false);
				this.schedules.reload();
				this.runs.get(s.name)?.reload();
				say(t("schedules.started"));
			} });
	}

	/** enable turns a schedule or an overlay on or off. */
	async enable(kind, s, resource) {
		const set = (enabled) => attempt(async () => {
			await api.request("PATCH", "/api/v1/" + kind + "/" + encodeURIComponent(s.name), { body: { enabled } });
			resource.reload();
			return true;
		});
		if (s.enabled && s.running) {
			const sure = await confirm({ title: t("schedules.disable"), text: h("p", null, t("schedules.disable.running")), label: t("schedules.disable"), danger: true, act: async () => {} });
			if (!sure) return;
		}
		if (await set(!s.enabled)) say(s.enabled ? t("schedules.isDisabled") : t("schedules.isEnabled"), { undo: () => set(s.enabled) });
	}

	remove(kind, s, fields, resource) {
		const path = "/api/v1/" + kind + "/" + encodeURIComponent(s.name);
		return confirm({ title: t("schedules.delete", { name: s.name }), text: kind === "overlays" && s.active ? h("p", null, t("overlays.delete.active")) : null, label: t("action.delete"), danger: true, preview: () => api.request("DELETE", path, { dryRun: true }), show: (x) => (x.affectedGroups ? h("p", null, t("overlays.affected"), " ", visible(x.affectedGroups.join(", ")) || "–") : h("p", null, t("schedules.delete.text"))), act: async () => {
			await api.request("DELETE", path);
			setQuery({ schedule: "" });
			resource.reload();
			say(t("schedules.deleted"), { undo: () => attempt(async () => { await api.put(path, pick(s, fields)); resource.reload(); }) });
		} });
	}

	async editSchedule(schedule) {
		const before = schedule ? await attempt(() => api.get(api.url`/api/v1/schedules/${schedule.name}`)) : { name: "", description: "", group: [...live.groups.keys()][0] ?? "", instance: null, node: null, action: "restart", command: "", count: null, drain: null, backup: null, cron: "0 4 * * *", timezone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC", warnings: [], jitterSeconds: 0, overlap: "skip", enabled: true };
		if (!before) return;
		const f = structuredClone(pick(before, ["name", ...scheduleFields]));
		let kind = f.node ? "node" : f.instance ? "instance" : "group";
		const lines = { before: (f.backup?.before ?? []).join("\n"), until: f.backup?.until ?? "", after: (f.backup?.after ?? []).join("\n") };
		let keep = f.backup?.keep ?? 7;
		let etag = before.$etag;
		const body = () => {
			const { name, ...rest } = f;
			/** @type {any} */
			const out = { ...rest, group: kind === "group" ? f.group : null, instance: kind === "instance" ? f.instance : null, node: kind === "node" ? f.node : null, jitterSeconds: Number(f.jitterSeconds) || 0, warnings: (f.warnings ?? []).map((w) => ({ beforeSeconds: Number(w.beforeSeconds), command: w.command })) };
			if (f.action !== "command") out.command = "";
			out.count = f.action === "start" && kind === "group" && f.count ? Number(f.count) : null;
			out.drain = f.action === "drain" ? { ...(f.drain ?? {}), timeout: f.drain?.timeout ? Number(f.drain.timeout) : null } : null;
			out.backup = f.action === "backup" ? { keep: keep === "" ? null : Number(keep), ...pauseLines(lines) } : null;
			return out;
		};
		const lacksData = () => f.action === "backup" && kind === "group" && live.groups.get(f.group)?.static === false;
		const put = (dryRun, value) => api.request("PUT", api.url`/api/v1/schedules/${f.name}`, { body: value ?? body(), dryRun, ifMatch: etag });
		const options = (names, present) => [...new Set([...names, present].filter(Boolean))].sort().map((n) => /** @type {[string, string]} */ ([n, n]));
		askForm({ title: schedule ? t("schedules.edit", { name: schedule.name }) : t("schedules.new"), label: t("action.save"), wide: true, preview: () => put(true), show: (x) => fieldChanges(x.diff, x.action === "create"), mine: body, theirs: () => api.get(api.url`/api/v1/schedules/${f.name}`), keepMine: (theirs) => { etag = theirs.$etag; },
			fields: () => h("div", { class: "form" },
				schedule ? null : field({ label: t("users.name"), name: "schedule-name", value: f.name, required: true, autofocus: true, hint: t("schedules.name.hint"), oninput: (v) => { f.name = v; } }),
				field({ label: t("schedules.kind"), name: "schedule-kind", value: kind, options: ["group", "instance", "node"].map((k) => [k, t("schedules.kind." + k)]), oninput: (v) => { kind = v; f.action = v === "node" ? "drain" : nodeActions.includes(f.action) ? "restart" : f.action; } }),
				kind === "group" ? field({ label: t("schedules.kind.group"), name: "schedule-group", value: f.group ?? "", options: options(live.groups.keys(), f.group), error: lacksData() ? t("schedules.backup.dynamic") : undefined, oninput: (v) => { f.group = v; } }) : kind === "node" ? field({ label: t("schedules.kind.node"), name: "schedule-node", value: f.node ?? "", options: [["", "–"], ...options(live.nodes.keys(), f.node)], oninput: (v) => { f.node = v; } }) : field({ label: t("schedules.kind.instance"), name: "schedule-instance", value: f.instance ?? "", required: true, list: [...live.instances.values()].filter((i) => f.action !== "backup" || live.groups.get(i.group)?.static !== false).slice(0, 500).map((i) => i.id), oninput: (v) => { f.instance = v; } }),
				field({ label: t("schedules.action"), name: "schedule-action", value: f.action, options: (kind === "node" ? nodeActions : actions).map((a) => [a, t("schedules.action." + a)]), oninput: (v) => { f.action = v; } }),
				f.action === "command" ? h("div", { class: "full" }, field({ label: t("schedules.command"), name: "schedule-command", value: f.command, required: true, maxlength: 1000, oninput: (v) => { f.command = v; } })) : null,
				f.action === "start" && kind === "group" ? field({ label: t("schedules.count"), name: "schedule-count", type: "number", min: "1", max: "50", value: f.count ?? 1, oninput: (v) => { f.count = v; } }) : null,
				f.action === "drain" ? h("div", { class: "full form" },
					field({ label: t("schedules.drain.timeout"), name: "drain-timeout", type: "number", min: "0", value: f.drain?.timeout ?? "", placeholder: "60", oninput: (v) => { f.drain = { ...(f.drain ?? {}), timeout: v }; } }),
					field({ label: t("schedules.drain.kick"), name: "drain-kick", value: f.drain?.kickMessage ?? "", oninput: (v) => { f.drain = { ...(f.drain ?? {}), kickMessage: v }; } }),
					field({ label: t("schedules.drain.move"), name: "drain-move", type: "checkbox", value: f.drain?.moveStatic, oninput: (v) => { f.drain = { ...(f.drain ?? {}), moveStatic: v }; } }),
					field({ label: t("schedules.drain.shutdown"), name: "drain-shutdown", type: "checkbox", value: f.drain?.shutdown, oninput: (v) => { f.drain = { ...(f.drain ?? {}), shutdown: v }; } })) : null,
				f.action === "backup" ? field({ label: t("schedules.backup.keep"), name: "backup-keep", type: "number", min: "0", max: "100", placeholder: "7", value: keep, hint: t("schedules.backup.keep.hint"), oninput: (v) => { keep = v; } }) : null,
				f.action === "backup" ? pauseFields(lines) : null,
				cronFields(f),
				field({ label: t("schedules.overlap"), name: "schedule-overlap", value: f.overlap, options: ["skip", "queue"].map((o) => [o, t("schedules.overlap." + o)]), oninput: (v) => { f.overlap = v; } }),
				field({ label: t("schedules.jitter"), name: "schedule-jitter", type: "number", min: "0", max: "3600", value: f.jitterSeconds, hint: t("schedules.jitter.hint"), oninput: (v) => { f.jitterSeconds = v; } }),
				h("div", { class: "full" }, field({ label: t("templates.description"), name: "schedule-description", value: f.description, oninput: (v) => { f.description = v; } })),
				h("fieldset", { class: "full warnings" }, h("legend", null, t("schedules.warnings")),
					(f.warnings ?? []).map((w, i) => h("div", { class: "warning" },
						field({ label: t("schedules.before.seconds"), name: "warning-before-" + i, type: "number", min: "1", max: "86400", value: w.beforeSeconds, required: true, oninput: (v) => { w.beforeSeconds = v; } }),
						field({ label: t("schedules.command"), name: "warning-command-" + i, value: w.command, required: true, oninput: (v) => { w.command = v; } }),
						button({ label: t("schedules.warnings.remove", { number: i + 1 }), icon: "close", hideLabel: true, onclick: () => { f.warnings.splice(i, 1); } }))),
					h("div", { class: "row" }, button({ label: t("schedules.warnings.add"), icon: "plus", onclick: () => { f.warnings = [...(f.warnings ?? []), { beforeSeconds: 60, command: "say " + t("schedules.warnings.example") }]; } }))),
				field({ label: t("schedules.enabled"), name: "schedule-enabled", type: "checkbox", value: f.enabled, oninput: (v) => { f.enabled = v; } }),
			),
			act: async () => {
				const next = await put(false);
				this.schedules.reload();
				setQuery({ tab: "", schedule: f.name });
				say(t("schedules.saved"), schedule ? { undo: () => attempt(async () => { etag = next.$etag; await put(false, pick(before, scheduleFields)); this.schedules.reload(); }) } : {});
			} });
	}

	// Overlays

	showOverlays() {
		return this.overlays.show((all) => {
			if (all.length === 0) return empty(t("overlays.none"), t("overlays.none.text"), button({ label: t("overlays.new"), icon: "plus", kind: "primary", needs: "groups.update", onclick: () => this.editOverlay(null) }));
			return h("div", { class: "grid wide" }, all.map((o) => card(visible(o.name), { key: o.name, actions: o.active ? h("span", { class: "badge good" }, t("overlays.active")) : o.enabled ? h("span", { class: "badge idle" }, t("overlays.waits")) : h("span", { class: "badge idle" }, t("schedules.disabled")) },
				o.description ? h("p", { class: "muted" }, visible(o.description)) : null,
				h("ul", { class: "plain" }, effects(o.overlay).map(([k, v]) => h("li", null, h("span", { class: "grow" }, t("overlays." + k)), h("strong", null, visible(v))))),
				facts(
					[t("overlays.affected"), (o.affectedGroups ?? []).length === 0 ? t("overlays.noGroups") : o.affectedGroups.slice(0, 20).map((g, i) => [i > 0 ? ", " : "", h("a", { href: link(["groups", g]) }, visible(g))])],
					o.cron ? [t("schedules.cron"), h("span", { class: "mono" }, visible(o.cron) + " · " + duration((o.durationSeconds ?? 0) * 1000) + " · " + visible(o.timezone))] : [t("overlays.window"), time(o.from) + " – " + time(o.until)],
					o.active ? [t("overlays.until"), [time(o.activeUntil), " (", age(o.activeUntil), ")"]] : [t("overlays.begins"), o.nextStart ? [time(o.nextStart), " (", age(o.nextStart), ")"] : "–"],
				),
				h("div", { class: "row" },
					button({ label: o.enabled ? t("schedules.disable") : t("schedules.enable"), needs: "groups.update", onclick: () => this.enable("overlays", o, this.overlays) }),
					button({ label: t("action.edit"), needs: "groups.update", onclick: () => this.editOverlay(o) }),
					button({ label: t("action.delete"), kind: "danger", needs: "groups.update", onclick: () => this.remove("overlays", o, overlayFields, this.overlays) })))));
		});
	}

	async editOverlay(overlay) {
		const before = overlay ? await attempt(() => api.get(api.url`/api/v1/overlays/${overlay.name}`)) : { name: "", description: "", groups: [], selector: {}, cron: "0 18 * * *", durationSeconds: 21600, from: null, until: null, timezone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC", overlay: {}, enabled: true };
		if (!before) return;
		/** @type {any} */
		const f = { ...structuredClone(pick(before, ["name", ...overlayFields])), groups: new Set(before.groups ?? []), selector: Object.entries(before.selector ?? {}).map(([k, v]) => k + "=" + v).join(", ") };
		const o = { ...(before.overlay ?? {}) };
		let repeats = Boolean(f.cron);
		let etag = before.$etag;
		const whole = (v) => (v === "" || v === null || v === undefined ? null : Number(v));
		const body = () => ({
			description: f.description, groups: [...f.groups], selector: Object.fromEntries(list(f.selector).map((s) => [s.split("=")[0], s.split("=").slice(1).join("=")])),
			...(repeats ? { cron: f.cron, durationSeconds: Number(f.durationSeconds), from: null, until: null } : { cron: "", from: f.from, until: f.until }), timezone: f.timezone, enabled: f.enabled,
			overlay: { minInstances: whole(o.minInstances), maxInstances: whole(o.maxInstances), scalingMode: o.scalingMode || null, maintenance: o.maintenance === "" || o.maintenance === undefined ? null : o.maintenance, maintenanceMessage: o.maintenance === true ? (o.maintenanceMessage ?? "") : "" },
		});
		const put = (dryRun, value) => api.request("PUT", api.url`/api/v1/overlays/${f.name}`, { body: value ?? body(), dryRun, ifMatch: etag });
		askForm({ title: overlay ? t("schedules.edit", { name: overlay.name }) : t("overlays.new"), label: t("action.save"), wide: true, preview: () => put(true), mine: body, theirs: () => api.get(api.url`/api/v1/overlays/${f.name}`), keepMine: (theirs) => { etag = theirs.$etag; },
			show: (x) => h("div", null, fieldChanges(x.diff, x.action === "create"), h("p", null, t("overlays.affected"), ": ", h("strong", null, visible((x.affectedGroups ?? []).join(", ")) || t("overlays.noGroups")))),
			fields: () => h("div", { class: "form" },
				overlay ? null : field({ label: t("users.name"), name: "overlay-name", value: f.name, required: true, autofocus: true, hint: t("schedules.name.hint"), oninput: (v) => { f.name = v; } }),
				h("div", { class: overlay ? "full" : "" }, field({ label: t("templates.description"), name: "overlay-description", value: f.description, oninput: (v) => { f.description = v; } })),
				h("fieldset", { class: "full" }, h("legend", null, t("nav.groups")), groupBoxes(f.groups), field({ label: t("overlays.selector"), name: "overlay-selector", value: f.selector, placeholder: "game=bedwars", hint: t("overlays.selector.hint"), oninput: (v) => { f.selector = v; } })),
				h("fieldset", { class: "full" }, h("legend", null, t("overlays.changes")), h("div", { class: "form" },
					field({ label: t("overlays.minInstances"), name: "overlay-min", type: "number", min: "0", value: o.minInstances ?? "", placeholder: t("overlays.unchanged"), oninput: (v) => { o.minInstances = v; } }),
					field({ label: t("overlays.maxInstances"), name: "overlay-max", type: "number", min: "0", value: o.maxInstances ?? "", placeholder: t("overlays.unchanged"), oninput: (v) => { o.maxInstances = v; } }),
					field({ label: t("overlays.scalingMode"), name: "overlay-mode", value: o.scalingMode ?? "", options: ["", "DYNAMIC", "STATIC", "MANUAL"].map((m) => [m, m || t("overlays.unchanged")]), oninput: (v) => { o.scalingMode = v; } }),
					field({ label: t("overlays.maintenance"), name: "overlay-maintenance", value: o.maintenance === true ? "true" : o.maintenance === false ? "false" : "", options: [["", t("overlays.unchanged")], ["true", t("maintenance.on")], ["false", t("maintenance.off")]], oninput: (v) => { o.maintenance = v === "" ? null : v === "true"; } }),
					o.maintenance === true ? field({ label: t("maintenance.message"), name: "overlay-message", value: o.maintenanceMessage ?? "", oninput: (v) => { o.maintenanceMessage = v; } }) : null)),
				field({ label: t("overlays.repeats"), name: "overlay-repeats", value: repeats ? "cron" : "once", options: [["cron", t("overlays.repeats.cron")], ["once", t("overlays.repeats.once")]], oninput: (v) => { repeats = v === "cron"; f.cron = f.cron || "0 18 * * *"; f.durationSeconds = f.durationSeconds || 21600; } }),
				repeats ? field({ label: t("overlays.hours"), name: "overlay-hours", type: "number", min: "0.1", step: "any", required: true, value: f.durationSeconds === "" ? "" : f.durationSeconds / 3600, oninput: (v) => { f.durationSeconds = v === "" ? "" : Math.round(Number(v) * 3600); } }) : null,
				repeats ? cronFields(f) : [field({ label: t("overlays.from"), name: "overlay-from", type: "datetime-local", required: true, value: localTime(f.from), oninput: (v) => { f.from = v ? new Date(v).toISOString() : null; } }), field({ label: t("overlays.until"), name: "overlay-until", type: "datetime-local", required: true, value: localTime(f.until), oninput: (v) => { f.until = v ? new Date(v).toISOString() : null; } })],
				field({ label: t("schedules.enabled"), name: "overlay-enabled", type: "checkbox", value: f.enabled, oninput: (v) => { f.enabled = v; } }),
			),
			act: async () => {
				const next = await put(false);
				this.overlays.reload();
				setQuery({ tab: "overlays" });
				say(t("schedules.saved"), overlay ? { undo: () => attempt(async () => { etag = next.$etag; await put(false, pick(before, overlayFields)); this.overlays.reload(); }) } : {});
			} });
	}

	// Calendar

	showCalendar() {
		return this.schedules.show((schedules) => this.overlays.show((overlays) => {
			const now = api.now(), today = new Date(now);
			today.setHours(0, 0, 0, 0);
			const days = Array.from({ length: 7 }, (_, i) => new Date(today.getFullYear(), today.getMonth(), today.getDate() + i).getTime());
			const end = new Date(today.getFullYear(), today.getMonth(), today.getDate() + 7).getTime();
			const entries = calendar(schedules, overlays, now, end);
			return h("div", { class: "page" },
				h("p", { class: "muted" }, t("calendar.about", { zone: Intl.DateTimeFormat().resolvedOptions().timeZone })),
				entries.length === 0 ? empty(t("calendar.none"), t("calendar.none.text")) : h("div", { class: "calendar" }, days.map((from, i) => {
					const until = days[i + 1] ?? end;
					const list = entries.filter((e) => e.from < until && (e.until ?? e.from + 1) > from).sort((a, b) => a.from - b.from);
					return h("section", { key: from, class: "day" }, h("h2", null, new Date(from).toLocaleDateString(language(), { weekday: "short", day: "numeric", month: "short" }), i === 0 ? h("span", { class: "muted small" }, " " + t("calendar.today")) : null), list.length === 0 ? h("p", { class: "muted small" }, t("calendar.free")) : h("ul", null, grouped(list, from, until).map((e) => h("li", { class: e.kind }, h("span", { class: "calendar-time" }, e.when), h("a", { href: e.href }, visible(e.name)), h("span", { class: "muted small block" }, e.text)))));
				})),
			);
		}));
	}
}

const clock = (at) => new Date(at).toLocaleTimeString(language(), { hour: "2-digit", minute: "2-digit" });
/** few is how many times of one schedule are listed for a day. More are one entry. */
const few = 6;

let kept = { key: "", entries: /** @type {any[]} */ ([]) };

/** calendar returns what is due until a time. It is computed again each minute, and when a list has changed. */
function calendar(schedules, overlays, now, end) {
	const key = JSON.stringify([schedules.map((s) => [s.name, s.cron, s.timezone, s.enabled, s.action, target(s)]), overlays, Math.floor(now / 60000), end]);
	if (key === kept.key) return kept.entries;
	const entries = [];
	for (const s of schedules) {
		if (!s.enabled) continue;
		for (const from of dueTimes(s.cron, s.timezone, now, end, 11000) ?? []) entries.push({ kind: "schedule", name: s.name, from, text: t("schedules.action." + s.action) + " " + visible(target(s)), href: link(["schedules"], { schedule: s.name }) });
	}
	for (const o of overlays) {
		if (!o.enabled) continue;
		const text = effects(o.overlay).map(([k, v]) => t("overlays." + k) + " " + visible(v)).join(", ") + " · " + visible((o.affectedGroups ?? []).join(", "));
		const add = (from, until) => entries.push({ kind: "overlay", name: o.name, from, until, text, href: link(["schedules"], { tab: "overlays" }) });
		const length = (o.durationSeconds ?? 0) * 1000;
		if (o.cron) for (const from of dueTimes(o.cron, o.timezone, now - length, end, 500) ?? []) add(from, from + length);
		else if (o.from && o.until && Date.parse(o.until) > now && Date.parse(o.from) < end) add(Date.parse(o.from), Date.parse(o.until));
	}
	kept = { key, entries };
	return entries;
}

/** grouped makes one entry of the many times of a schedule in a day, and writes the times. */
function grouped(list, from, until) {
	const times = new Map();
	for (const e of list) if (e.kind === "schedule") times.set(e.name, [...(times.get(e.name) ?? []), e.from]);
	const seen = new Set(), out = [];
	for (const e of list) {
		const all = times.get(e.name);
		if (e.kind === "overlay") out.push({ ...e, when: (e.from < from ? "…" : clock(e.from)) + "–" + (e.until > until ? "…" : clock(e.until)) });
		else if (all.length <= few) out.push({ ...e, when: clock(e.from) });
		else if (!seen.has(e.name)) {
			seen.add(e.name);
			out.push({ ...e, when: t("calendar.times", { count: all.length, first: clock(all[0]), last: clock(all[all.length - 1]) }) });
		}
	}
	return out;
}

/** target names what a schedule concerns. */
function target(s) {
	return s.group ?? s.instance ?? s.node ?? "";
}

/** effects lists what an overlay changes. */
function effects(o) {
	const out = [];
	for (const k of ["minInstances", "maxInstances", "scalingMode"]) if (o?.[k] !== null && o?.[k] !== undefined) out.push([k, String(o[k])]);
	if (o?.maintenance !== null && o?.maintenance !== undefined) out.push(["maintenance", (o.maintenance ? t("maintenance.on") : t("maintenance.off")) + (o.maintenanceMessage ? " · " + o.maintenanceMessage : "")]);
	return out;
}

/** cronFields draws the inputs of a cron expression, with the times that it means. */
function cronFields(f) {
	const now = api.now(), due = f.cron ? dueTimes(f.cron, f.timezone, now, now + 400 * 86400e3, 3) : null;
	return h("div", { class: "full form" },
		field({ label: t("schedules.cron"), name: "cron", value: f.cron, required: true, class: "mono", hint: t("schedules.cron.hint"), oninput: (v) => { f.cron = v; } }),
		field({ label: t("schedules.zone"), name: "zone", value: f.timezone, list: zones, oninput: (v) => { f.timezone = v; } }),
		h("p", { class: "full small", role: "status" }, due === null ? h("span", { class: "muted" }, t("schedules.cron.bad")) : due.length === 0 ? h("span", { class: "muted" }, t("schedules.cron.never")) : [t("schedules.cron.next"), " ", due.map((d) => time(d)).join(" · ")]));
}

/** localTime writes a time as an input of date and time wants it. */
function localTime(at) {
	if (!at) return "";
	const d = new Date(at);
	return new Date(d.getTime() - d.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

function result(r) {
	return h("span", { class: "badge " + (tones[r.result] ?? "busy") }, r.result ? t("schedules.result." + r.result) : t("schedules.running"));
}

/** run draws one run with its steps. */
function run(r) {
	return h("li", { key: r.number, class: "version" },
		h("span", { class: "grow" }, result(r), h("span", { class: "block muted small" }, "#" + r.number, " · ", r.requestedBy ? t("schedules.by", { name: visible(r.requestedBy) }) : t("schedules.due"), " · ", age(r.startedAt), r.endedAt ? " · " + duration(Date.parse(r.endedAt) - Date.parse(r.startedAt)) : "")),
		r.message ? h("p", { class: "version-diff small" }, visible(r.message)) : null,
		h("details", { class: "version-diff" }, h("summary", { class: "small" }, t("schedules.steps", { count: r.steps.length })), steps(r.steps)));
}

function steps(list) {
	return h("ol", { class: "layers" }, list.map((s) => h("li", null,
		h("strong", null, t("schedules.action." + s.action)), " ", s.command ? h("span", { class: "mono" }, visible(s.command)) : null, h("span", { class: "muted small" }, " · ", s.beforeSeconds ? t("schedules.before", { duration: duration(s.beforeSeconds * 1000) }) + " · " : "", time(s.at)),
		s.message ? h("p", { class: "small" }, visible(s.message)) : null,
		h("p", { class: "small muted" }, s.instances.slice(0, 30).map((i, n) => [n > 0 ? ", " : "", visible(i.name), i.state !== "PENDING" ? " (" + t("schedules.step." + i.state) + (i.message ? ": " + visible(i.message) : "") + ")" : i.message ? ": " + visible(i.message) : ""]), s.omitted || s.instances.length > 30 ? t("schedules.omitted", { count: s.omitted + Math.max(0, s.instances.length - 30) }) : ""))));
}
