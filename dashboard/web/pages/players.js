// Players: find one, and send them to another server.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { List, sorted } from "../parts/list.js";
import { confirm } from "../parts/dialog.js";
import { age, button, empty, field, heading, Resource, say } from "../parts/ui.js";

const columns = [
	{ id: "name", label: "players.name", width: "minmax(9rem,1.2fr)", cell: (p) => visible(p.name), sort: (p) => p.name },
	{ id: "server", label: "players.server", width: "minmax(9rem,1fr)", cell: (p) => server(p.currentInstance), sort: (p) => p.currentInstance },
	{ id: "proxy", label: "players.proxy", width: "minmax(8rem,1fr)", cell: (p) => server(p.proxyInstance), sort: (p) => p.proxyInstance, wide: true },
	{ id: "edition", label: "players.edition", width: "6rem", cell: (p) => visible(p.edition), sort: (p) => p.edition, wide: true },
	{ id: "since", label: "players.since", width: "9rem", align: "right", cell: (p) => age(p.connectedSince), sort: (p) => p.connectedSince, wide: true },
	{ id: "actions", label: "groups.actions", width: "11rem", align: "right", cell: (p) => h("span", { class: "row end" }, button({ label: t("players.message"), kind: "small", needs: "players.message", group: p.currentGroup, onclick: () => message(p) }), button({ label: t("players.move"), kind: "small", needs: "players.transfer", group: p.currentGroup, onclick: () => transfer(p) })) },
];

function server(name) {
	return name ? h("a", { href: link(["instances", name]) }, visible(name)) : "–";
}

function transfer(p) {
	const servers = [...live.instances.values()].filter((i) => i.state === "RUNNING" && i.id !== p.currentInstance && i.uid !== p.currentInstance).sort((a, b) => (a.id < b.id ? -1 : 1));
	const state = { to: servers[0]?.id ?? "" };
	return confirm({
		title: t("players.move.title", { name: visible(p.name) }),
		text: h("p", null, t("players.move.text")),
		label: t("players.move"),
		fields: () => field({ label: t("players.move.to"), name: "to", value: state.to, options: servers.map((i) => [i.id, i.id + " · " + (i.playerCount ?? "?") + (i.maxPlayers ? " / " + i.maxPlayers : "")]), oninput: (v) => { state.to = v; } }),
		act: async () => {
			await api.post(api.url`/api/v1/players/${p.id}/transfer`, { targetInstanceId: state.to });
			say(t("players.moved", { name: visible(p.name), to: state.to }));
		},
	});
}

function message(p) {
	const state = { content: "" };
	return confirm({
		title: t("players.message.title", { name: visible(p.name) }),
		text: h("p", null, t("players.message.text")),
		label: t("players.message.send"),
		fields: () => field({ label: t("players.message.content"), name: "content", required: true, maxlength: "1024", autofocus: true, value: state.content, oninput: (v) => { state.content = v; } }),
		act: async () => {
			await api.post(api.url`/api/v1/players/${p.id}/message`, { content: state.content });
			say(t("players.messaged", { name: visible(p.name) }));
		},
	});
}

export default class Players {
	constructor() {
		this.list = new Resource(() => api.all("/api/v1/players"));
		let waiting = 0;
		this.end = live.subscribe((e) => {
			if (!e.type.startsWith("PLAYER_") || waiting) return;
			waiting = setTimeout(() => { waiting = 0; this.list.reload(); }, 300);
		});
	}

	removed() {
		this.end();
	}

	view() {
		const q = route().query, text = (q.get("q") ?? "").toLowerCase();
		const sort = { column: q.get("sort") ?? "name", descending: q.get("order") === "desc" };
		return h("div", { class: "page" }, heading(t("nav.players")), h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("players.filter"), value: q.get("q") ?? "", oninput: (ev) => setQuery({ q: ev.target.value }) }), this.list.data ? h("span", { class: "muted" }, t("players.count", { count: this.list.data.length })) : null), this.list.show((all) => h(List, { rows: sorted(all.filter((p) => !text || (p.name + " " + p.id + " " + p.currentInstance + " " + p.currentGroup).toLowerCase().includes(text)), columns, sort), columns: columns.map((c) => ({ ...c, label: t(c.label) })), id: (p) => p.id, sort, onsort: (column, descending) => setQuery({ sort: column, order: descending ? "desc" : "" }), label: t("nav.players"), none: all.length ? empty(t("list.none"), t("list.none.text")) : empty(t("players.none"), t("players.none.text")) })));
	}
}
