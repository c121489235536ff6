// What operators do to instances, groups and nodes, each with its preview and its undo.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { number, visible } from "../core/format.js";
import { allowedEverywhere } from "../core/session.js";
import { t } from "../core/text.js";
import { confirm } from "./dialog.js";
import { attempt, button, field, say } from "./ui.js";

/**
 * results draws the answer of a bulk request or of its dry run.
 * @param {any} answer
 */
export function results(answer) {
	const list = answer.data;
	return h("div", null, h("ul", { class: "plain small" }, list.slice(0, 50).map((r) => h("li", null, h("strong", null, visible(r.id)), r.ok ? null : h("span", { class: "badge bad" }, t("bulk.refused")), h("span", { class: "grow muted" }, r.players ? t("bulk.players", { count: r.players }) + " · " : "", visible(r.message))))), list.length > 50 ? h("p", { class: "muted" }, t("bulk.more", { count: list.length - 50 })) : null);
}

/**
 * actOnInstances asks, and then does the same to several instances.
 * @param {"stop" | "kill" | "restart" | "start" | "delete"} action
 * @param {string[]} ids
 */
export function actOnInstances(action, ids) {
	return confirm({
		title: t("instances." + action + ".title", { count: ids.length }),
		text: h("p", null, t("instances." + action + ".text")),
		label: t("instances." + action),
		danger: action !== "start" && action !== "restart",
		preview: () => api.post("/api/v1/services/bulk", { action, ids }, { dryRun: true }),
		show: results,
		act: async () => {
			const answer = await api.post("/api/v1/services/bulk", { action, ids });
			const failed = answer.data.filter((r) => !r.ok);
			if (failed.length) say(t("bulk.failed", { count: failed.length, message: visible(failed[0].message) }), { tone: "bad" });
			else say(t("instances." + action + ".done", { count: ids.length }));
		},
	});
}

/** instanceActions returns the buttons for one instance. */
export function instanceActions(i) {
	const path = api.url`/api/v1/services/${i.uid}`;
	const act = (verb, done, undo) => attempt(() => api.post(path + "/" + verb), done, undo ? { undo: () => attempt(() => api.post(path + "/" + undo)) } : undefined);
	const list = [];
	if (live.hasEnded(i)) {
		// A group replaces the others by new instances. Starting the old one would stop one of these.
		if (live.groups.get(i.group)?.static) list.push(button({ label: t("instances.start"), kind: "primary", needs: "groups.start", group: i.group, onclick: () => act("start", t("instances.start.done", { count: 1 })) }));
		list.push(button({ label: t("instances.delete"), kind: "danger", needs: "instances.delete", group: i.group, onclick: () => actOnInstances("delete", [i.uid]) }));
		return list;
	}
	if (live.stateOf(i) === "SLEEPING") list.push(button({ label: t("instances.wake"), kind: "primary", needs: "groups.start", group: i.group, onclick: () => act("wake", t("instances.wake.done")) }));
	list.push(button({ label: t("instances.restart"), needs: "instances.stop", group: i.group, onclick: () => actOnInstances("restart", [i.uid]) }));
	if (i.frozen) list.push(button({ label: t("instances.unfreeze"), needs: "instances.stop", group: i.group, onclick: () => act("unfreeze", t("instances.unfreeze.done"), "freeze") }));
	else list.push(button({ label: t("instances.freeze"), needs: "instances.stop", group: i.group, title: t("instances.freeze.hint"), onclick: () => act("freeze", t("instances.freeze.done"), "unfreeze") }));
	list.push(button({ label: t("instances.stop"), kind: "danger", needs: "instances.stop", group: i.group, onclick: () => actOnInstances("stop", [i.uid]) }));
	list.push(button({ label: t("instances.kill"), kind: "danger", needs: "instances.stop", group: i.group, onclick: () => actOnInstances("kill", [i.uid]) }));
	return list;
}

/**
 * groupDryRun draws what a change or a deployment of a group would do.
 * @param {any} d
 */
export function groupDryRun(d) {
	const line = (key, list) => (list?.length ? h("li", null, h("strong", null, t("effect." + key, { count: list.length })), h("span", { class: "muted grow" }, list.slice(0, 12).join(", ") + (list.length > 12 ? " …" : ""))) : null);
	const placed = (d.placements ?? []).map((p) => visible(p.name) + (p.node ? " → " + visible(p.node) : " · " + t("effect.waits") + (p.message ? ": " + visible(p.message) : "")));
	const lines = [line("start", placed.length ? placed : (d.start ?? []).map(visible)), line("stop", (d.stop ?? []).map(visible)), line("replace", (d.replace ?? []).map((r) => visible(r.id) + (r.players ? " (" + t("bulk.players", { count: r.players }) + ")" : "")))].filter(Boolean);
	const notes = [d.message, ...(d.notes ?? [])].filter(Boolean);
	return h("div", null, d.diff?.length ? fieldChanges(d.diff, d.action === "create") : null, lines.length ? h("ul", { class: "plain small" }, lines) : null, notes.map((n) => h("p", { class: "small" }, visible(n))), !d.diff?.length && !lines.length && !notes.length ? h("p", { class: "muted" }, t("effect.none")) : null);
}

/**
 * fieldChanges draws changed fields with their values before and after.
 * @param {{field: string, from: any, to: any}[]} diff
 * @param {boolean} [created] leaves out the values before
 */
export function fieldChanges(diff, created) {
	if (diff.length === 0) return h("p", { class: "muted" }, t("diff.same"));
	const show = (v) => (v === null || v === undefined ? h("span", { class: "muted" }, t("diff.unset")) : h("code", null, visible(typeof v === "string" ? v : JSON.stringify(v))));
	return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("diff.field") }, h("table", { class: "small" }, h("thead", null, h("tr", null, h("th", null, t("diff.field")), created ? null : h("th", null, t("diff.from")), h("th", null, t(created ? "diff.value" : "diff.to")))), h("tbody", null, diff.map((d) => h("tr", null, h("td", null, h("code", null, visible(d.field))), created ? null : h("td", { class: "removed" }, show(d.from)), h("td", { class: created ? "" : "added" }, show(d.to)))))));
}

/** scale asks for another number of instances. */
export function scale(g) {
	const state = { n: String(g.minInstances) };
	return confirm({
		title: t("groups.scale.title", { name: g.name }),
		label: t("groups.scale"),
		fields: (again) => h("div", null, field({ label: t("groups.scale.to"), name: "scale", type: "number", min: "0", max: "100000", required: true, value: state.n, autofocus: true, oninput: (v) => { state.n = v; again(); } }), h("p", { class: "muted" }, t("groups.scale.text", { running: number(g.runningInstances) }))),
		preview: () => api.post(api.url`/api/v1/groups/${g.name}/scale`, { targetInstances: Number(state.n) }, { dryRun: true }),
		show: groupDryRun,
		act: async () => {
			const before = { minInstances: g.minInstances, maxInstances: g.maxInstances };
			const done = await api.post(api.url`/api/v1/groups/${g.name}/scale`, { targetInstances: Number(state.n) });
			say(t("groups.scale.done", { name: g.name, count: state.n }), { undo: !allowedEverywhere("groups.update") ? undefined : () => attempt(() => api.patch(api.url`/api/v1/groups/${g.name}`, before, { ifMatch: done.$etag }), t("undone")) });
		},
	});
}

/** deploy asks how to replace the instances of a group, with the server's preview. */
export function deploy(g) {
	const state = { strategy: g.updateStrategy ?? "ROLLING", deadline: "300", batch: "1", canary: "1" };
	const body = () => ({
		strategy: state.strategy,
		deadlineSeconds: Number(state.deadline),
		batchSize: state.strategy === "BLUE_GREEN" ? undefined : Number(state.batch),
		canaryInstances: state.strategy === "CANARY" ? Number(state.canary) : undefined,
	});
	return confirm({
		title: t("groups.deploy.title", { name: g.name }),
		text: h("p", null, t("groups.deploy.text")),
		label: t("groups.deploy"),
		fields: (again) => h(
			"div",
			{ class: "form" },
			field({ label: t("groups.deploy.strategy"), name: "strategy", value: state.strategy, options: ["ROLLING", "CANARY", "BLUE_GREEN"].map((s) => [s, t("strategy." + s)]), oninput: (v) => { state.strategy = v; again(); } }),
			state.strategy === "CANARY" ? field({ label: t("groups.deploy.canary"), name: "canary", type: "number", min: "1", required: true, value: state.canary, hint: t("groups.deploy.canary.hint"), oninput: (v) => { state.canary = v; again(); } }) : null,
			state.strategy === "BLUE_GREEN" ? null : field({ label: t("groups.deploy.batch"), name: "batch", type: "number", min: "1", required: true, value: state.batch, hint: g.static ? undefined : t("groups.deploy.batch.hint"), oninput: (v) => { state.batch = v; again(); } }),
			field({ label: t("groups.deploy.deadline"), name: "deadline", type: "number", min: "0", required: true, value: state.deadline, hint: t("groups.deploy.deadline.hint"), oninput: (v) => { state.deadline = v; } }),
		),
		preview: () => api.post(api.url`/api/v1/groups/${g.name}/deploy`, body(), { dryRun: true }),
		show: groupDryRun,
		act: async () => {
			await api.post(api.url`/api/v1/groups/${g.name}/deploy`, body());
			say(t("groups.deploy.done", { name: g.name }));
			location.hash = "#/groups/" + encodeURIComponent(g.name) + "?tab=deployments";
		},
	});
}

/** deleteGroup asks, and deletes a group with its instances. */
export function deleteGroup(g) {
	return confirm({
		title: t("groups.delete.title", { name: g.name }),
		text: h("p", null, t("groups.delete.text", { count: g.runningInstances })),
		label: t("action.delete"),
		danger: true,
		typed: g.runningInstances > 0 ? g.name : undefined,
		preview: () => api.del(api.url`/api/v1/groups/${g.name}`, { dryRun: true }),
		show: (d) => (d.stop?.length || d.notes?.length ? groupDryRun(d) : h("p", { class: "muted" }, t("groups.delete.none"))),
		act: async () => {
			await api.del(api.url`/api/v1/groups/${g.name}`);
			say(t("groups.delete.done", { name: g.name }));
			location.hash = "#/groups";
		},
	});
}

/** nodeActions returns the buttons for one node. */
export function nodeActions(n, small) {
	const path = api.url`/api/v1/nodes/${n.id}`;
	const kind = small ? "small" : "";
	const list = [];
	if (n.status === "DRAINING") list.push(button({ label: t("nodes.undrain"), kind, needs: "nodes.drain", onclick: () => attempt(() => api.post(path + "/undrain"), t("nodes.undrain.done", { name: n.id })) }));
	else {
		if (n.cordoned) list.push(button({ label: t("nodes.uncordon"), kind, needs: "nodes.drain", onclick: () => attempt(() => api.post(path + "/uncordon"), t("nodes.uncordon.done", { name: n.id }), { undo: () => attempt(() => api.post(path + "/cordon")) }) }));
		else list.push(button({ label: t("nodes.cordon"), kind, needs: "nodes.drain", title: t("nodes.cordon.hint"), onclick: () => attempt(() => api.post(path + "/cordon"), t("nodes.cordon.done", { name: n.id }), { undo: () => attempt(() => api.post(path + "/uncordon")) }) }));
		if (n.type === "CONNECTED") list.push(button({ label: t("nodes.drain"), kind: "danger " + kind, needs: "nodes.drain", onclick: () => drain(n) }));
		else list.push(button({ label: t("action.delete"), kind: "danger " + kind, needs: "nodes.drain", onclick: () => confirm({ title: t("nodes.delete.title", { name: n.id }), text: h("p", null, t("nodes.delete.text")), label: t("action.delete"), danger: true, typed: n.id, act: async () => { await api.del(path); say(t("nodes.delete.done", { name: n.id })); location.hash = "#/nodes"; } }) }));
	}
	return list;
}

/** drain asks how to empty a node, with the server's preview. */
export function drain(n) {
	const state = { timeout: "60", shutdown: false, moveStatic: false, kickMessage: "" };
	const query = () => ({ timeout: state.timeout, shutdown: state.shutdown, moveStatic: state.moveStatic, kickMessage: state.kickMessage });
	return confirm({
		title: t("nodes.drain.title", { name: n.id }),
		text: h("p", null, t("nodes.drain.text")),
		label: t("nodes.drain"),
		danger: true,
		fields: (again) => h(
			"div",
			{ class: "form" },
			field({ label: t("nodes.drain.timeout"), name: "timeout", type: "number", min: "1", max: "86400", value: state.timeout, oninput: (v) => { state.timeout = v; } }),
			field({ label: t("nodes.drain.message"), name: "kick", maxlength: "200", value: state.kickMessage, oninput: (v) => { state.kickMessage = v; } }),
			field({ label: t("nodes.drain.static"), name: "static", type: "checkbox", value: state.moveStatic, oninput: (v) => { state.moveStatic = v; again(); } }),
			field({ label: t("nodes.drain.shutdown"), name: "shutdown", type: "checkbox", value: state.shutdown, oninput: (v) => { state.shutdown = v; } }),
		),
		preview: () => api.post(api.url`/api/v1/nodes/${n.id}/drain`, undefined, { dryRun: true, query: query() }),
		show: drainDryRun,
		act: async () => {
			await api.post(api.url`/api/v1/nodes/${n.id}/drain`, undefined, { query: query() });
			say(t("nodes.drain.done", { name: n.id }), { undo: () => attempt(() => api.post(api.url`/api/v1/nodes/${n.id}/undrain`), t("nodes.undrain.done", { name: n.id })) });
		},
	});
}

function drainDryRun(d) {
	if (d.instances.length === 0) return h("p", { class: "muted" }, t("nodes.drain.empty"));
	const unplaced = d.instances.filter((i) => i.unplaced).length;
	return h("div", null, unplaced ? h("p", { class: "notice bad" }, t("nodes.drain.unplaced", { count: unplaced })) : null, (d.notes ?? []).map((n) => h("p", { class: "small" }, visible(n))), h("ul", { class: "plain small" }, d.instances.map((i) => h("li", null, h("strong", null, visible(i.id)), i.blocks ? h("span", { class: "badge warn" }, t("nodes.drain.blocks")) : null, h("span", { class: "grow muted" }, visible(i.outlook || i.message))))));
}
