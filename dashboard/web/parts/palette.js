// Search over everything, and the list of shortcuts.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link } from "../core/router.js";
import * as session from "../core/session.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { ask } from "./dialog.js";
import { actOnInstances, deploy, drain, scale } from "./actions.js";

/**
 * openPalette asks where to go or what to do.
 * @param {{id: string, key?: string}[]} pages
 */
export async function openPalette(pages) {
	const state = { text: "", at: 0 };
	const chosen = await ask(t("palette.title"), (close) => {
		const list = search(state.text, pages);
		state.at = Math.max(0, Math.min(list.length - 1, state.at));
		return h(
			"div",
			{ class: "dialog-body palette" },
			h("input", { type: "search", role: "combobox", "aria-expanded": "true", "aria-controls": "palette", "aria-activedescendant": list.length ? "palette-" + state.at : undefined, "aria-label": t("palette.placeholder"), placeholder: t("palette.placeholder"), autofocus: true, autocomplete: "off", value: state.text, oninput: (ev) => { state.text = ev.target.value; state.at = 0; }, onkeydown: (ev) => {
				if (ev.isComposing) return;
				if (ev.key === "ArrowDown") state.at++;
				else if (ev.key === "ArrowUp") state.at--;
				else if (ev.key === "Enter") {
					const chosen = search(state.text, pages)[state.at]; // what is drawn may be a frame behind
					if (chosen) close(chosen);
				} else return;
				ev.preventDefault();
				requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("palette-" + state.at)?.scrollIntoView({ block: "nearest" })));
			} }),
			h("ul", { id: "palette", role: "listbox", "aria-label": t("palette.title") }, list.map((x, n) => h("li", { key: x.href ?? x.name, id: "palette-" + n, role: "option", "aria-selected": String(n === state.at), class: n === state.at ? "current" : "", onclick: () => close(x) }, h("span", null, visible(x.name)), h("span", { class: "muted small" }, x.more ? visible(x.more) + " · " : "", t("palette." + x.kind))))),
			list.length === 0 ? h("p", { class: "muted" }, t("palette.none")) : null,
		);
	});
	if (!chosen) return;
	if (chosen.href) location.hash = chosen.href;
	else chosen.run();
}

function search(text, pages) {
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	const list = [];
	const add = (kind, name, more, to) => {
		if (list.length >= 50) return;
		const all = (name + " " + (more ?? "") + " " + t("palette." + kind)).toLowerCase();
		if (words.every((w) => all.includes(w))) list.push({ kind, name, more, ...to });
	};
	for (const p of pages) add("page", t("nav." + p.id), "", { href: "#/" + (p.id === "overview" ? "" : p.id) });
	if (words.length) {
		for (const g of live.groups.values()) add("group", g.name, g.platform, { href: "#/groups/" + encodeURIComponent(g.name) });
		for (const n of live.nodes.values()) add("node", n.id, n.address, { href: "#/nodes/" + encodeURIComponent(n.id) });
		for (const i of live.instances.values()) {
			if (list.length >= 50) break;
			add("instance", i.id, t("state." + live.stateOf(i)) + " · " + (i.node ?? ""), { href: "#/instances/" + i.uid });
		}
	}
	for (const c of commands()) if (c) add("command", c.name, "", c);
	if (words.length) for (const a of acts(words)) {
		if (list.length >= 50) break;
		add("command", t("palette.act", a), "", { run: a.run, href: a.href });
	}
	return list;
}

/**
 * acts yields what can be done to objects, for the verbs that a word names.
 * @param {string[]} words
 */
function* acts(words) {
	const named = (verb) => t(verb).toLowerCase().split(" ").some((part) => words.some((w) => part.startsWith(w)));
	for (const [verb, needs, act] of /** @type {[string, string, (g: any) => any][]} */ ([["groups.scale", "groups.update", scale], ["groups.deploy", "groups.update", deploy]])) {
		if (named(verb)) for (const g of live.groups.values()) if (live.allowedIn(needs, g.name) && !(act === scale && g.scalingMode === "MANUAL")) yield { verb: t(verb), name: g.name, run: () => act(g) };
	}
	if (named("nodes.drain") && session.allowed("nodes.drain")) for (const n of live.nodes.values()) if (n.type === "CONNECTED" && n.status !== "DRAINING") yield { verb: t("nodes.drain"), name: n.id, run: () => drain(n) };
	for (const action of /** @type {const} */ (["restart", "stop", "kill"])) {
		if (named("instances." + action)) for (const i of live.instances.values()) if (!live.hasEnded(i) && live.allowedIn("instances.stop", i.group)) yield { verb: t("instances." + action), name: i.id, run: () => actOnInstances(action, [i.uid]) };
	}
	if (named("instance.tab.console")) for (const i of live.instances.values()) if (live.allowedIn("instances.console", i.group)) yield { verb: t("instance.tab.console"), name: i.id, href: link(["instances", i.uid], { tab: "console" }) };
}

function commands() {
	return [
		session.allowed("groups.create") ? { name: t("palette.newGroup"), href: "#/groups?new=1" } : null,
		...["light", "dark", "system"].map((theme) => ({ name: t("palette.theme." + theme), run: () => useTheme(theme) })),
		{ name: t("palette.logout"), run: logout },
	];
}

/**
 * useTheme sets the colours: light, dark, or those of the system.
 * @param {string} theme
 */
export function useTheme(theme) {
	localStorage.setItem("orrery.theme", theme);
	if (theme === "system") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = theme;
}

/** logout ends the login on every gateway and in every tab. */
export async function logout() {
	await api.post("/api/v1/auth/logout").catch(() => {});
	// What was typed into consoles may hold secrets.
	for (const k of Object.keys(localStorage)) if (k.startsWith("orrery.console.")) localStorage.removeItem(k);
	live.stop();
	session.end();
}

/**
 * openHelp lists the shortcuts.
 * @param {{id: string, key?: string}[]} pages
 */
export function openHelp(pages) {
	const row = (keys, text) => h("tr", null, h("td", { class: "nowrap" }, keys.map((k) => [h("kbd", null, k), " "])), h("td", null, text));
	return ask(t("help.title"), () => h("div", { class: "dialog-body" }, h("table", null, h("tbody", null, row(["Ctrl", "K"], t("help.palette")), row(["/"], t("help.filter")), row(["?"], t("help.help")), row(["↑", "↓"], t("help.move")), row(["Enter"], t("help.open")), row(["Space"], t("help.select")), row(["Esc"], t("help.close")), pages.filter((p) => p.key).map((p) => row(["g", p.key], t("help.go", { page: t("nav." + p.id) })))))));
}
