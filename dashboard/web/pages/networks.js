// Networks: which groups players join first, and where they go when a server ends.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { fieldChanges } from "../parts/actions.js";
import { confirm } from "../parts/dialog.js";
import { reloadOn } from "../parts/follow.js";
import { askForm, groupBoxes, list } from "../parts/form.js";
import { age, attempt, button, card, empty, facts, field, heading, Resource, say } from "../parts/ui.js";

const names = ["description", "lobbyGroup", "fallbackGroups", "memberGroups", "proxyGroups", "kickMessage", "bedrockLobbyGroup", "bedrockFallbackGroups"];
/** pick returns what may be sent of a network. @returns {any} */
const pick = (o) => Object.fromEntries(names.map((n) => [n, o[n]]));

export default class Networks {
	constructor() {
		this.networks = new Resource(() => api.all("/api/v1/networks"));
		this.end = reloadOn((e) => e.type.startsWith("NETWORK_"), () => this.networks.reload());
	}

	removed() {
		this.end();
	}

	view() {
		const q = (route().query.get("q") ?? "").toLowerCase();
		const make = () => button({ label: t("networks.new"), icon: "plus", kind: "primary", needs: "networks.create", onclick: () => this.edit(null) });
		return h("div", { class: "page" },
			heading(t("nav.networks"), { under: h("p", { class: "muted" }, t("networks.about")), actions: [make()] }),
			this.networks.show((all) => {
				if (all.length === 0) return empty(t("networks.none"), t("networks.none.text"), make());
				const shown = all.filter((n) => JSON.stringify([n.name, n.description, n.lobbyGroup, n.memberGroups, n.proxyGroups]).toLowerCase().includes(q));
				return h("div", { class: "page" },
					all.length > 3 || q ? h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("filter"), value: route().query.get("q") ?? "", oninput: (ev) => setQuery({ q: ev.target.value }) })) : null,
					shown.length === 0 ? empty(t("list.none"), t("list.none.text"), button({ label: t("list.clear"), onclick: () => setQuery({ q: "" }) })) : h("div", { class: "grid wide" }, shown.map((n) => this.network(n))));
			}),
		);
	}

	network(n) {
		const players = [...new Set([...(n.proxyGroups ?? [])])].reduce((sum, g) => sum + (live.groups.get(g)?.totalPlayers ?? 0), 0);
		return card(visible(n.name), { key: n.name, actions: n.proxyGroups?.length ? h("span", { class: "muted small" }, t("networks.players", { count: number(players) })) : null },
			n.description ? h("p", { class: "muted" }, visible(n.description)) : null,
			h("div", { class: "route" }, chain(t("networks.joins"), [n.lobbyGroup, ...(n.fallbackGroups ?? [])])),
			n.bedrockLobbyGroup ? h("div", { class: "route" }, chain(t("networks.bedrock"), [n.bedrockLobbyGroup, ...(n.bedrockFallbackGroups ?? [])])) : null,
			facts([t("networks.proxyGroups"), groups(n.proxyGroups)], [t("networks.memberGroups"), groups(n.memberGroups)], [t("networks.kickMessage"), visible(n.kickMessage) || "–"], [t("users.changed"), [visible(n.updatedBy), " ", age(n.updatedAt)]]),
			h("div", { class: "row" },
				button({ label: t("action.edit"), needs: "networks.update", onclick: () => this.edit(n) }),
				h("a", { class: "button", href: link(["audit"], { kind: "network", name: n.name }) }, t("users.audit")),
				button({ label: t("action.delete"), kind: "danger", needs: "networks.delete", onclick: () => this.remove(n) })));
	}

	async edit(network) {
		const before = network ? await attempt(() => api.get(api.url`/api/v1/networks/${network.name}`)) : { name: "", description: "", lobbyGroup: "", fallbackGroups: [], memberGroups: [], proxyGroups: [], kickMessage: "", bedrockLobbyGroup: "", bedrockFallbackGroups: [] };
		if (!before) return;
		const f = { ...before, fallbackGroups: (before.fallbackGroups ?? []).join(", "), bedrockFallbackGroups: (before.bedrockFallbackGroups ?? []).join(", "), memberGroups: new Set(before.memberGroups ?? []), proxyGroups: new Set(before.proxyGroups ?? []) };
		let etag = before.$etag;
		const body = () => ({ description: f.description, lobbyGroup: f.lobbyGroup, fallbackGroups: list(f.fallbackGroups), memberGroups: [...f.memberGroups], proxyGroups: [...f.proxyGroups], kickMessage: f.kickMessage, bedrockLobbyGroup: f.bedrockLobbyGroup, bedrockFallbackGroups: list(f.bedrockFallbackGroups) });
		const path = () => api.url`/api/v1/networks/${f.name}`;
		/** @type {(dryRun: boolean, value?: any) => Promise<any>} */
		const send = (dryRun, value = body()) => (network ? api.request("PUT", path(), { body: value, dryRun, ifMatch: etag }) : api.post("/api/v1/networks", { name: f.name, ...value }, { dryRun }));
		/** @returns {[string, string][]} */
		const options = (present) => [["", "–"], ...[...new Set([...live.groups.keys(), present].filter(Boolean))].sort().map((n) => /** @type {[string, string]} */ ([n, n]))];
		askForm({ title: network ? t("networks.edit", { name: network.name }) : t("networks.new"), label: t("action.save"), wide: true, preview: () => send(true), show: (x) => fieldChanges(x.diff, x.action === "create"), mine: body, theirs: () => api.get(path()), keepMine: (theirs) => { etag = theirs.$etag; },
			fields: () => h("div", { class: "form" },
				network ? null : field({ label: t("users.name"), name: "network-name", value: f.name, required: true, autofocus: true, hint: t("networks.name.hint"), oninput: (v) => { f.name = v; } }),
				field({ label: t("templates.description"), name: "network-description", value: f.description, oninput: (v) => { f.description = v; } }),
				field({ label: t("networks.lobbyGroup"), name: "network-lobby", value: f.lobbyGroup, required: true, options: options(f.lobbyGroup), hint: t("networks.lobbyGroup.hint"), oninput: (v) => { f.lobbyGroup = v; } }),
				field({ label: t("networks.fallbackGroups"), name: "network-fallback", value: f.fallbackGroups, hint: t("networks.fallbackGroups.hint"), oninput: (v) => { f.fallbackGroups = v; } }),
				h("fieldset", { class: "full" }, h("legend", null, t("networks.proxyGroups")), h("p", { class: "muted small" }, t("networks.proxyGroups.hint")), groupBoxes(f.proxyGroups)),
				h("fieldset", { class: "full" }, h("legend", null, t("networks.memberGroups")), h("p", { class: "muted small" }, t("networks.memberGroups.hint")), groupBoxes(f.memberGroups)),
				h("div", { class: "full" }, field({ label: t("networks.kickMessage"), name: "network-kick", value: f.kickMessage, hint: t("networks.kickMessage.hint"), oninput: (v) => { f.kickMessage = v; } })),
				field({ label: t("networks.bedrockLobbyGroup"), name: "network-bedrock", value: f.bedrockLobbyGroup, options: options(f.bedrockLobbyGroup), oninput: (v) => { f.bedrockLobbyGroup = v; } }),
				field({ label: t("networks.bedrockFallbackGroups"), name: "network-bedrock-fallback", value: f.bedrockFallbackGroups, hint: t("networks.fallbackGroups.hint"), oninput: (v) => { f.bedrockFallbackGroups = v; } }),
			),
			act: async () => {
				const next = await send(false);
				this.networks.reload();
				say(t("networks.saved"), network ? { undo: () => attempt(async () => { etag = next.$etag; await send(false, pick(before)); this.networks.reload(); }) } : {});
			} });
	}

	remove(n) {
		const path = api.url`/api/v1/networks/${n.name}`;
		return confirm({ title: t("networks.delete", { name: n.name }), text: h("p", null, t("networks.delete.text")), label: t("action.delete"), danger: true, preview: () => api.request("DELETE", path, { dryRun: true }), act: async () => {
			await api.request("DELETE", path);
			this.networks.reload();
			say(t("networks.deleted"), { undo: () => attempt(async () => { await api.post("/api/v1/networks", { name: n.name, ...pick(n) }); this.networks.reload(); }) });
		} });
	}
}

/** chain draws groups in the order in which players try them. */
function chain(label, list) {
	return [h("span", { class: "muted small" }, label), h("ol", { class: "chain" }, list.filter(Boolean).map((g) => h("li", null, group(g))))];
}

function group(name) {
	const g = live.groups.get(name);
	return h("span", null, h("a", { href: link(["groups", name]) }, visible(name)), live.state.loaded && !g ? h("span", { class: "badge bad" }, t("networks.noGroup")) : g ? h("span", { class: "muted small" }, " " + number(g.runningInstances)) : null);
}

function groups(list) {
	return list?.length ? list.map((g, i) => [i > 0 ? ", " : "", group(g)]) : "–";
}
