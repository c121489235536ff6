// The frame around the pages: navigation, connection, login, search and shortcuts.
import { h, mount, redraw } from "./core/dom.js";
import * as api from "./core/api.js";
import * as live from "./core/live.js";
import * as router from "./core/router.js";
import * as session from "./core/session.js";
import { t, useLanguage } from "./core/text.js";
import { duration, visible } from "./core/format.js";
import { checkVersion, isUpdated } from "./core/version.js";
import { dialogs, isOpen } from "./parts/dialog.js";
import { button, denied, failure, heading, icon, loading, toasts } from "./parts/ui.js";
import { picture } from "./parts/avatar.js";
import { Login } from "./pages/login.js";
import { Reset } from "./pages/reset.js";

/**
 * pages is where the reader can go. needs is the permission that shows a page in the navigation;
 * key is what follows g on the keyboard.
 * @type {{id: string, needs?: string, key?: string, load: () => Promise<any>, section: string}[]}
 */
export const pages = [
	{ id: "overview", key: "o", section: "fleet", load: () => import("./pages/overview.js") },
	{ id: "topology", key: "t", needs: "nodes.view", section: "fleet", load: () => import("./pages/topology.js") },
	{ id: "groups", key: "g", needs: "groups.view", section: "fleet", load: () => import("./pages/groups.js") },
	{ id: "instances", key: "i", needs: "instances.view", section: "fleet", load: () => import("./pages/instances.js") },
	{ id: "nodes", key: "n", needs: "nodes.view", section: "fleet", load: () => import("./pages/nodes.js") },
	{ id: "console", key: "c", needs: "instances.console", section: "fleet", load: () => import("./pages/console.js") },
	{ id: "deployments", key: "d", needs: "groups.view", section: "change", load: () => import("./pages/deployments.js") },
	{ id: "templates", key: "m", needs: "templates.view", section: "change", load: () => import("./pages/templates.js") },
	{ id: "schedules", key: "s", needs: "groups.view", section: "change", load: () => import("./pages/schedules.js") },
	{ id: "players", key: "p", needs: "players.view", section: "look", load: () => import("./pages/players.js") },
	{ id: "networks", key: "w", needs: "networks.view", section: "look", load: () => import("./pages/networks.js") },
	{ id: "crashes", key: "x", needs: "crashes.view", section: "look", load: () => import("./pages/crashes.js") },
	{ id: "events", key: "e", needs: "events.stream", section: "look", load: () => import("./pages/events.js") },
	{ id: "audit", key: "a", needs: "audit.view", section: "look", load: () => import("./pages/audit.js") },
	{ id: "users", key: "u", needs: "users.view", section: "admin", load: () => import("./pages/users.js") },
	{ id: "settings", key: ",", section: "admin", load: () => import("./pages/settings.js") },
];

/** detail is the pages of one object: the second part of the address names it. */
const detail = {
	groups: () => import("./pages/group.js"),
	instances: () => import("./pages/instance.js"),
	nodes: () => import("./pages/node.js"),
	templates: () => import("./pages/template.js"),
	crashes: () => import("./pages/crash.js"),
};

/** @type {Map<string, any>} */
const loaded = new Map();
/** @type {Map<string, any>} */
const broken = new Map();
let navigation = false;

function visiblePages() {
	return pages.filter((p) => !p.needs || session.allowed(p.needs));
}

/** page draws the page of the address. */
function page() {
	const { path } = router.route();
	const id = path[0] ?? "overview";
	const known = pages.find((p) => p.id === id);
	if (!known || path.length > 1 && !(id in detail) && id !== "users" && id !== "console") return missing();
	const name = path.length > 1 && id in detail ? id + "/" : id;
	// The tabs of users need different permissions, which that page checks. A page stays under an expired login.
	if (known.needs && id !== "users" && session.current() && !session.allowed(known.needs)) return [h("div", { key: id, class: "page" }, heading(t("nav." + id)), denied(known.needs)), h(Arrival, { key: id + " arrival" })];
	const Page = loaded.get(name);
	if (Page) return [h(Page, { key: path.slice(0, 2).join("/"), path }), h(Arrival, { key: path.slice(0, 2).join("/") + " arrival" })];
	if (broken.has(name)) return isUpdated() ? h("div", { class: "empty" }, h("p", { class: "muted" }, t("updated.page"))) : failure(broken.get(name), () => (broken.delete(name), redraw()));
	const load = name.endsWith("/") ? detail[id] : known.load;
	load().then((m) => loaded.set(name, m.default), (err) => checkVersion().then(() => broken.set(name, new api.Failure(0, "OFFLINE", err.message)))).then(redraw);
	return [h("h1", { class: "hidden" }, t("nav." + id)), loading()];
}

/** Arrival names a page that the reader opened, and moves the focus to its heading, so that it is read aloud. */
class Arrival {
	mounted() {
		const to = /** @type {HTMLElement | null} */ (document.querySelector("main h1") ?? document.getElementById("main"));
		const { path } = router.route();
		const name = document.querySelector("main h1")?.textContent ?? visible(path[1]);
		document.title = [...new Set([name, t("nav." + (path[0] ?? "overview")), "Orrery"])].filter(Boolean).join(" · ");
		if (arrived && !document.activeElement?.closest("main, dialog")) to?.focus({ preventScroll: true });
		arrived = true;
	}

	view() {
		return null;
	}
}

/** arrived is set after the first page, which the browser announces itself. */
let arrived = false;

function missing() {
	return h("div", { class: "empty" }, h("h1", null, t("missing.title")), h("p", { class: "muted" }, t("missing.text")), h("p", null, h("a", { class: "button primary", href: "#/" }, t("nav.overview"))));
}

function nav() {
	const at = router.route().path[0] ?? "overview";
	const sections = ["fleet", "change", "look", "admin"];
	return h(
		"nav",
		{ class: "nav" + (navigation ? " open" : ""), "aria-label": t("nav"), id: "nav" },
		h("a", { class: "brand", href: "#/" }, h("img", { src: new URL("./icon.svg", import.meta.url).href, alt: "", width: "26", height: "26" }), "Orrery"),
		sections.map((s) => {
			const list = visiblePages().filter((p) => p.section === s);
			if (list.length === 0) return null;
			return h("div", { class: "nav-section" }, h("h2", null, t("nav." + s)), h("ul", null, list.map((p) => h("li", null, h("a", { href: "#/" + (p.id === "overview" ? "" : p.id), class: p.id === at ? "current" : "", "aria-current": p.id === at ? "page" : undefined, onclick: () => { navigation = false; } }, icon(icons[p.id] ?? p.id), t("nav." + p.id), count(p.id))))));
		}),
		h("div", { class: "nav-section" }, h("ul", null, h("li", null, h("a", { href: "/docs", target: "_blank", rel: "noopener" }, icon("api"), t("nav.api"))))),
	);
}

const icons = { console: "api" };

/** count is the small number beside a page's name. */
function count(id) {
	if (!live.state.loaded) return null;
	const list = { groups: live.groups, instances: live.instances, nodes: live.nodes }[id];
	return list ? h("span", { class: "count", "aria-hidden": "true" }, list.size) : null;
}

function connection() {
	const s = live.state;
	if (s.stream === "live") return h("span", { class: "live good", role: "status" }, t("live.live"));
	if (s.stream === "connecting") return h("span", { class: "live busy", role: "status" }, t("live.connecting"));
	if (s.stream === "off") return h("span", { class: "live idle", title: s.why, role: "status" }, t("live.off"));
	const wait = Math.max(0, s.retryAt - Date.now());
	return h("span", { class: "live bad", role: "status", title: s.why }, t("live.waiting", { duration: duration(wait) }), button({ label: t("live.retry"), kind: "quiet", onclick: live.retryNow }));
}

function banners() {
	const list = [];
	const skew = api.skew();
	if (live.state.stream === "waiting") list.push(h("div", { class: "banner bad", role: "alert" }, t("banner.offline")));
	if (isUpdated()) list.push(h("div", { class: "banner warn", role: "status" }, t("banner.updated"), button({ label: t("banner.updated.load"), kind: "quiet", onclick: () => location.reload() })));
	if (live.state.missedAt) list.push(h("div", { class: "banner warn" }, t("banner.missed"), button({ label: t("action.close"), kind: "quiet", onclick: () => { live.state.missedAt = 0; } })));
	if (Math.abs(skew) > 60000) list.push(h("div", { class: "banner warn" }, t("banner.clock", { duration: duration(Math.round(Math.abs(skew) / 60000) * 60000) })));
	if (live.state.failure && live.state.loaded) list.push(failure(live.state.failure, live.reload));
	return list;
}

function top() {
	const u = session.user();
	return h(
		"header",
		{ class: "top" },
		h("button", { type: "button", class: "button quiet nav-button", "aria-label": t("nav"), "aria-expanded": String(navigation), "aria-controls": "nav", onclick: () => { navigation = !navigation; } }, icon("menu")),
		h("button", { type: "button", class: "search", "aria-label": t("palette.open"), onclick: () => palette() }, icon("search"), h("span", null, t("palette.open")), h("kbd", null, "Ctrl K")),
		h("span", { class: "grow" }),
		connection(),
		h("a", { class: "button quiet user", href: "#/settings?tab=profile", title: t("settings.profile") }, picture(u), h("span", null, u?.username ?? "")),
	);
}

async function palette() {
	if (isOpen()) return;
	(await import("./parts/palette.js")).openPalette(visiblePages());
}

async function help() {
	if (isOpen()) return;
	(await import("./parts/palette.js")).openHelp(visiblePages());
}

function app() {
	if (router.route().path[0] === "reset") return h("main", { class: "outside" }, h(Reset), toasts(), dialogs());
	if (!session.current() && !session.hasExpired()) {
		live.stop();
		return h("main", { class: "outside" }, h(Login, { key: "login" }), toasts(), dialogs());
	}
	if (session.current()) live.start();
	return h(
		"div",
		{ class: "frame", onclick: closeNavigation },
		h("a", { class: "skip", href: "#main", onclick: (ev) => { ev.preventDefault(); document.getElementById("main")?.focus(); } }, t("skip")),
		nav(),
		h("div", { class: "body" }, top(), h("div", { class: "banners" }, banners()), h("main", { id: "main", tabindex: "-1" }, page())),
		toasts(),
		dialogs(),
		// The page and the dialogs under it stay as they are, with everything that was typed.
		session.hasExpired() ? h("dialog", { class: "cover", key: "expired", "aria-label": t("login.title"), ref: showCover, oncancel: (ev) => ev.preventDefault(), onclose: (ev) => session.hasExpired() && ev.target.showModal() }, h(Login, { again: true })) : null,
	);
}

/** @type {HTMLDialogElement | null} */
let cover = null;

/** showCover opens the login over the page. Closing it returns the focus to where it was. */
function showCover(el) {
	if (el) el.showModal();
	else cover?.close();
	cover = el;
}

function closeNavigation(ev) {
	if (navigation && !ev.target.closest("#nav") && !ev.target.closest(".nav-button")) navigation = false;
}

// Keys work where no text is typed.
let pending = 0;
addEventListener("keydown", (ev) => {
	if ((ev.ctrlKey || ev.metaKey) && ev.key.toLowerCase() === "k") {
		ev.preventDefault();
		if (session.current()) palette();
		return;
	}
	const target = /** @type {HTMLElement} */ (ev.target);
	if (ev.ctrlKey || ev.metaKey || ev.altKey || target.closest("input, textarea, select, [contenteditable]") || !session.current() || isOpen()) return;
	if (pending && Date.now() - pending < 1500) {
		pending = 0;
		const p = visiblePages().find((p) => p.key === ev.key);
		if (p) {
			ev.preventDefault();
			router.go(p.id === "overview" ? [] : [p.id]);
			return;
		}
	}
	if (ev.key === "g") pending = Date.now();
	else if (ev.key === "?") help();
	else if (ev.key === "/") {
		const filter = /** @type {HTMLElement | null} */ (document.querySelector("main input[type=search]"));
		if (filter) {
			ev.preventDefault();
			filter.focus();
		}
	} else if (ev.key === "Escape" && navigation) {
		navigation = false;
		redraw();
	}
});

router.listen();
session.follow();
// A page that the browser kept for the way back has no stream, and is old.
addEventListener("pageshow", (ev) => ev.persisted && location.reload());
await useLanguage("");
if (session.current()) live.checkUser();
mount(/** @type {Element} */ (document.getElementById("app")), app, failure);
