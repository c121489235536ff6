// Users, what they may do, and the tokens of programs and nodes.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link, route, setQuery } from "../core/router.js";
import * as session from "../core/session.js";
import { number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "../parts/dialog.js";
import { changed, reloadOn } from "../parts/follow.js";
import { askForm, list, objectDiff, showOnce } from "../parts/form.js";
import { List, sorted } from "../parts/list.js";
import { age, attempt, button, card, denied, empty, facts, field, heading, Resource, say, tabs } from "../parts/ui.js";
import { sessionList } from "../parts/sessions.js";
import { ownTokens } from "../parts/workloads.js";

const needs = { users: "users.view", roles: "roles.view", bindings: "roles.view", "service-accounts": "users.view", tokens: "tokens.view" };

export default class Users {
	constructor() {
		const read = (path, permission) => new Resource(() => (session.allowed(permission) ? api.all(path) : Promise.resolve([])));
		this.users = read("/api/v1/users", "users.view");
		this.roles = read("/api/v1/roles", "roles.view");
		this.bindings = read("/api/v1/bindings", "roles.view");
		this.accounts = read("/api/v1/service-accounts", "users.view");
		this.tokens = read("/api/v1/api-tokens", "tokens.view");
		this.joins = read("/api/v1/admin/tokens", "tokens.view");
		this.sessions = new Map();
		this.role = /** @type {any} */ (null);
		this.end = reloadOn(changed("user", "role", "binding", "service-account", "api-token", "join-token"), () => this.reload());
	}

	removed() {
		this.end();
	}

	reload() {
		for (const r of [this.users, this.roles, this.bindings, this.accounts, this.tokens, this.joins]) r.reload();
	}

	view() {
		const shown = Object.keys(needs).filter((id) => session.allowed(needs[id]));
		const wanted = route().query.get("tab") ?? "users", tab = shown.includes(wanted) ? wanted : shown[0];
		const draw = { users: () => this.showUsers(), roles: () => this.showRoles(), bindings: () => this.showBindings(), "service-accounts": () => this.showAccounts(), tokens: () => this.showTokens() }[tab];
		return h("div", { class: "page" },
			heading(t("nav.users"), { actions: this.actions(tab) }),
			tabs(shown.map((id) => ({ id, label: t("users.tab." + id), href: link(["users"], { tab: id === "users" ? "" : id }) })), tab),
			draw ? draw() : denied(Object.hasOwn(needs, wanted) ? needs[wanted] : needs.users),
		);
	}

	actions(tab) {
		switch (tab) {
			case "users": return [button({ label: t("users.new"), icon: "plus", kind: "primary", needs: "users.create", onclick: () => this.createUser() })];
			case "roles": return [button({ label: t("roles.new"), icon: "plus", kind: "primary", needs: "roles.manage", onclick: () => this.createRole() })];
			case "bindings": return [button({ label: t("bindings.new"), icon: "plus", kind: "primary", needs: "roles.manage", onclick: () => this.editBinding(null) })];
			case "service-accounts": return [button({ label: t("accounts.new"), icon: "plus", kind: "primary", needs: "users.create", onclick: () => this.createAccount() })];
			case "tokens": return [button({ label: t("tokens.join.new"), needs: "tokens.create", onclick: () => this.createJoin() }), button({ label: t("tokens.new"), icon: "plus", kind: "primary", needs: "tokens.create", onclick: () => this.createToken("") })];
		}
		return [];
	}

	/** @returns {[string, string][]} */
	roleOptions(present) {
		return [...new Set([...(this.roles.data ?? []).map((r) => r.name), present].filter(Boolean))].map((n) => [n, n]);
	}

	// Users

	showUsers() {
		return this.users.show((all) => {
			const query = route().query, q = (query.get("q") ?? "").toLowerCase(), name = query.get("user"), by = { column: query.get("sort") ?? "name", descending: query.get("order") === "desc" };
			const columns = [
				{ id: "name", label: t("users.name"), width: "minmax(8rem,1.5fr)", sort: (u) => u.username, cell: (u) => visible(u.username) },
				{ id: "role", label: t("users.role"), width: "8rem", sort: (u) => u.role, cell: (u) => h("span", { class: "tag" }, u.role) },
				{ id: "factor", label: t("users.factor"), width: "8rem", wide: true, sort: (u) => String(u.secondFactor), cell: (u) => (u.secondFactor ? t("users.yes") : h("span", { class: "muted" }, t("users.no"))) },
				...(name ? [] : [
					{ id: "bindings", label: t("users.tab.bindings"), width: "minmax(6rem,1fr)", wide: true, cell: (u) => visible((u.bindings ?? []).map((b) => b.name).join(", ")) },
					{ id: "provider", label: t("users.provider"), width: "minmax(6rem,1fr)", wide: true, sort: (u) => u.provider, cell: (u) => visible(u.provider ?? t("users.local")) },
					{ id: "created", label: t("users.created"), width: "8rem", wide: true, sort: (u) => Date.parse(u.createdAt), cell: (u) => age(u.createdAt) },
				]),
			];
			const rows = sorted(all.filter((u) => (u.username + " " + u.email + " " + u.role).toLowerCase().includes(q)), columns, by);
			const user = name ? all.find((u) => u.username === name) : null;
			return h("div", { class: "page" },
				h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("filter"), value: query.get("q") ?? "", oninput: (ev) => setQuery({ q: ev.target.value }) }), h("span", { class: "muted small" }, t("users.count", { count: rows.length }))),
				h("div", { class: name ? "beside" : "" },
					h(List, { rows, columns, id: (u) => u.username, href: (u) => link(["users"], { ...Object.fromEntries(query), user: u.username }), sort: by, onsort: (column, descending) => setQuery({ sort: column, order: descending ? "desc" : "" }), label: t("nav.users"), none: empty(t("list.none"), t("list.none.text"), button({ label: t("list.clear"), onclick: () => setQuery({ q: "" }) })) }),
					name ? this.showUser(name, user) : null),
			);
		});
	}

	showUser(name, u) {
		const close = button({ label: t("action.close"), icon: "close", hideLabel: true, kind: "quiet", onclick: () => setQuery({ user: "" }) });
		if (!u) return card(visible(name), { actions: close, class: "aside" }, h("p", { class: "muted" }, t("failure.404")));
		const path = api.url`/api/v1/users/${name}`;
		if (!this.sessions.has(name)) this.sessions.set(name, new Resource(() => api.all(path + "/sessions")));
		const own = session.user()?.username === name;
		return card(visible(name), { actions: close, class: "aside", key: name },
			facts([t("users.role"), h("span", { class: "tag" }, u.role)], [t("users.email"), visible(u.email) || "–"], [t("users.factor"), u.secondFactor ? t("users.yes") : t("users.no")], [t("users.provider"), visible(u.provider ?? t("users.local"))], u.minecraftName ? [t("users.player"), visible(u.minecraftName)] : null, [t("users.created"), age(u.createdAt)]),
			u.bindings?.length ? h("div", null, h("h3", null, t("users.tab.bindings")), h("ul", { class: "plain" }, u.bindings.map((b) => h("li", { key: b.name }, h("a", { class: "grow", href: link(["users"], { tab: "bindings" }) }, visible(b.name)), h("span", { class: "muted small" }, b.role, " · ", h("span", { class: "mono" }, visible(b.selector || t("bindings.all"))))))) ) : null,
			h("details", null, h("summary", null, t("users.permissions", { count: u.permissions.length })), h("p", { class: "small mono" }, u.permissions.join(", "))),
			h("div", { class: "row" },
				button({ label: t("action.edit"), needs: "users.update", onclick: () => this.editUser(u) }),
				u.provider ? null : button({ label: t("users.password"), needs: "users.update", onclick: () => this.resetPassword(u) }),
				u.secondFactor ? button({ label: t("users.factor.remove"), needs: "users.update", onclick: () => this.removeFactor(u) }) : null,
				h("a", { class: "button", href: link(["audit"], { user: name }) }, t("users.audit")),
				own ? null : button({ label: t("action.delete"), kind: "danger", needs: "users.delete", onclick: () => this.deleteUser(u) })),
			h("h3", null, t("sessions.title")),
			this.sessions.get(name).show((all) => sessionList(all, { end: session.allowed("users.update") || own ? (s) => api.request("DELETE", path + api.url`/sessions/${s.id}`) : null, endAll: () => api.request("DELETE", path + "/sessions"), reload: () => this.sessions.get(name).reload(), who: name })),
		);
	}

	createUser() {
		const f = { username: "", password: "", role: "VIEWER", email: "" };
		return askForm({ title: t("users.new"), label: t("action.create"), fields: () => h("div", { class: "form" },
			field({ label: t("users.name"), name: "new-username", value: f.username, required: true, maxlength: 32, autocomplete: "off", autofocus: true, hint: t("users.name.hint"), oninput: (v) => { f.username = v; } }),
			passwordField(f, "password"),
			field({ label: t("users.role"), name: "new-role", value: f.role, options: this.roleOptions(f.role), oninput: (v) => { f.role = v; } }),
			field({ label: t("users.email"), name: "new-email", type: "email", value: f.email, autocomplete: "off", oninput: (v) => { f.email = v; } }),
		), act: async () => {
			const u = await api.post("/api/v1/users", { ...f, email: f.email || undefined });
			this.users.reload();
			say(t("users.made", { name: u.username }));
			setQuery({ user: u.username });
		} });
	}

	async editUser(user) {
		const path = api.url`/api/v1/users/${user.username}`;
		const before = await attempt(() => api.get(path));
		if (!before) return undefined;
		const f = { username: before.username, role: before.role, email: before.email };
		let etag = before.$etag;
		const send = async (body, at) => {
			const answer = await api.request("PATCH", api.url`/api/v1/users/${at}`, { body, ifMatch: etag });
			takeTokens(answer);
			this.users.reload();
			return answer;
		};
		return askForm({ title: t("users.edit", { name: user.username }), label: t("action.save"), mine: () => f, theirs: () => api.get(path), keepMine: (theirs) => { etag = theirs.$etag; }, fields: () => h("div", { class: "form" },
			field({ label: t("users.name"), name: "edit-username", value: f.username, required: true, maxlength: 32, hint: t("users.rename.hint"), oninput: (v) => { f.username = v; } }),
			field({ label: t("users.role"), name: "edit-role", value: f.role, disabled: before.provider !== null, hint: before.provider ? t("users.role.provider") : undefined, options: this.roleOptions(f.role), oninput: (v) => { f.role = v; } }),
			field({ label: t("users.email"), name: "edit-email", type: "email", value: f.email, oninput: (v) => { f.email = v; } }),
		), act: async () => {
			const body = Object.fromEntries(objectDiff(before, f).map((d) => [d.field, d.to]));
			const next = await send(body, before.username);
			setQuery({ user: next.username });
			etag = undefined;
			say(t("users.saved"), { undo: () => attempt(() => send(Object.fromEntries(Object.keys(body).map((k) => [k, before[k]])), next.username)) });
		} });
	}

	resetPassword(u) {
		const f = { password: "", endApiTokens: false };
		return askForm({ title: t("users.password.title", { name: u.username }), label: t("users.password"), danger: true, fields: () => h("div", { class: "page" }, h("p", null, t("users.password.text")), passwordField(f, "password"), field({ label: t("users.password.tokens"), name: "end-tokens", type: "checkbox", value: f.endApiTokens, oninput: (v) => { f.endApiTokens = v; } })), act: async () => {
			takeTokens(await api.request("PATCH", api.url`/api/v1/users/${u.username}`, { body: f }));
			this.sessions.get(u.username)?.reload();
			say(t("users.password.done"));
		} });
	}

	removeFactor(u) {
		return confirm({ title: t("users.factor.remove"), text: h("p", null, t("users.factor.remove.text", { name: u.username })), label: t("users.factor.remove"), danger: true, act: async () => {
			await api.request("DELETE", api.url`/api/v1/users/${u.username}/second-factor`);
			this.users.reload();
			say(t("users.factor.removed"));
		} });
	}

	deleteUser(u) {
		const path = api.url`/api/v1/users/${u.username}`;
		return confirm({ title: t("users.delete", { name: u.username }), text: h("p", null, t("users.delete.text")), label: t("action.delete"), danger: true, typed: u.username, preview: () => api.request("DELETE", path, { dryRun: true }), show: () => facts([t("sessions.title"), number(this.sessions.get(u.username)?.data?.length)], [t("tokens.api"), number((this.tokens.data ?? []).filter((x) => x.user === u.username).length)], [t("users.tab.bindings"), number(u.bindings?.length ?? 0)]), act: async () => {
			await api.request("DELETE", path);
			setQuery({ user: "" });
			this.users.reload();
			say(t("users.deleted"));
		} });
	}

	// Roles

	permissions() {
		const all = new Set(session.user()?.permissions ?? []);
		for (const r of this.roles.data ?? []) for (const p of r.permissions) all.add(p);
		const areas = new Map();
		for (const p of [...all].sort()) {
			const area = p.slice(0, p.indexOf("."));
			areas.set(area, [...(areas.get(area) ?? []), p]);
		}
		return areas;
	}

	showRoles() {
		return this.roles.show((all) => {
			const name = route().query.get("role"), may = session.allowed("roles.manage");
			const columns = [
				{ id: "name", label: t("users.role"), width: "minmax(8rem,1.5fr)", cell: (r) => r.name },
				{ id: "users", label: t("nav.users"), width: "8rem", cell: (r) => t("users.count", { count: r.userCount }) },
				{ id: "permissions", label: t("roles.permissions"), width: "9rem", cell: (r) => t("users.permissions", { count: r.permissions.length }) },
				{ id: "kind", label: t("tokens.kind"), width: "minmax(6rem,1fr)", cell: (r) => (r.builtIn ? h("span", { class: "muted" }, t("roles.builtIn")) : null) },
			];
			const role = name ? all.find((r) => r.name === name) : null;
			return h("div", { class: "page" },
				h(List, { rows: all, columns, id: (r) => r.name, href: (r) => link(["users"], { tab: "roles", role: r.name }), label: t("users.tab.roles") }),
				role ? this.showRole(role, may) : null);
		});
	}

	showRole(role, may) {
		const fixed = !may || (role.builtIn && ["ADMIN", "NONE"].includes(role.name));
		if (this.role?.name !== role.name) this.role = { name: role.name, chosen: new Set(role.permissions), busy: false };
		const chosen = this.role.chosen;
		const added = [...chosen].filter((p) => !role.permissions.includes(p)), removed = role.permissions.filter((p) => !chosen.has(p));
		const dirty = added.length + removed.length > 0;
		return card(role.name, { key: role.name, actions: h("span", { class: "row" }, button({ label: t("roles.copy"), needs: "roles.manage", onclick: () => this.createRole(role) }), !fixed && !role.builtIn ? button({ label: t("action.delete"), kind: "danger", onclick: () => this.deleteRole(role) }) : null) },
			fixed ? h("p", { class: "muted" }, may ? t("roles.fixed") : t("failure.403")) : h("p", { class: "muted" }, t("roles.about")),
			h("form", { class: "page", onsubmit: (ev) => { ev.preventDefault(); return this.saveRole(role, added, removed); } },
				this.boxes(chosen, fixed),
				!fixed && dirty ? h("div", { class: "bulk" }, h("span", { class: "grow" }, t("roles.changes", { added: added.length, removed: removed.length })), button({ label: t("action.cancel"), onclick: () => { this.role = null; } }), button({ label: t("action.save"), kind: "primary", type: "submit", onclick: undefined })) : null));
	}

	/** boxes draws the permissions as check boxes in areas. */
	boxes(chosen, fixed) {
		const own = new Set(session.user()?.permissions ?? []);
		return h("div", { class: "permissions" }, [...this.permissions()].map(([area, list]) => {
			const title = t("area." + area), on = list.filter((p) => chosen.has(p)).length;
			const all = h("input", { type: "checkbox", checked: on === list.length, indeterminate: on > 0 && on < list.length, disabled: fixed, onchange: (ev) => { for (const p of list) if (ev.target.checked && own.has(p)) chosen.add(p); else if (!ev.target.checked) chosen.delete(p); } });
			return h("fieldset", { key: area }, h("legend", null, h("label", { class: "check" }, all, title.startsWith("area.") ? area : title)), list.map((p) => h("label", { class: "check", key: p, title: own.has(p) ? undefined : t("roles.notYours") }, h("input", { type: "checkbox", checked: chosen.has(p), disabled: fixed || (!own.has(p) && !chosen.has(p)), onchange: (ev) => { if (ev.target.checked) chosen.add(p); else chosen.delete(p); } }), h("span", { class: "mono small" }, p.slice(area.length + 1)))));
		}));
	}

	saveRole(role, added, removed) {
		const path = api.url`/api/v1/roles/${role.name}`, before = role.permissions;
		let etag;
		const send = (permissions, dryRun) => api.request("PATCH", path, { body: { permissions }, dryRun, ifMatch: dryRun ? undefined : etag });
		const wanted = [...this.role.chosen].sort();
		return confirm({ title: t("roles.save", { name: role.name }), label: t("action.save"), text: h("p", null, t("roles.save.text", { count: role.userCount })),
			preview: async () => {
				const now = await api.get(path);
				etag = now.$etag;
				if (JSON.stringify([...now.permissions].sort()) !== JSON.stringify([...before].sort())) throw new api.Failure(412, "", t("roles.moved"));
				return send(wanted, true);
			},
			show: () => h("ul", { class: "plain" }, added.map((p) => h("li", null, h("span", { class: "change-mark good" }, "+"), h("span", { class: "mono" }, p))), removed.map((p) => h("li", null, h("span", { class: "change-mark bad" }, "−"), h("span", { class: "mono" }, p)))),
			act: async () => {
				await send(wanted, false);
				this.role = null;
				this.roles.reload();
				say(t("roles.saved"), { undo: () => attempt(async () => { etag = undefined; await send(before, false); this.role = null; this.roles.reload(); }) });
			} });
	}

	createRole(from) {
		const f = { name: from ? from.name + "_2" : "", chosen: new Set(from?.permissions ?? []) };
		return askForm({ title: t("roles.new"), label: t("action.create"), wide: true, fields: () => h("div", { class: "page" }, field({ label: t("users.name"), name: "role-name", value: f.name, required: true, autofocus: true, hint: t("roles.name.hint"), oninput: (v) => { f.name = v.toUpperCase(); } }), this.boxes(f.chosen, false)), act: async () => {
			await api.post("/api/v1/roles", { name: f.name, permissions: [...f.chosen].sort() });
			this.roles.reload();
			setQuery({ role: f.name });
			say(t("roles.made"));
		} });
	}

	deleteRole(role) {
		const path = api.url`/api/v1/roles/${role.name}`;
		return confirm({ title: t("roles.delete", { name: role.name }), text: h("p", null, t("roles.delete.text")), label: t("action.delete"), danger: true, preview: () => api.request("DELETE", path, { dryRun: true }), act: async () => {
			await api.request("DELETE", path);
			setQuery({ role: "" });
			this.roles.reload();
			say(t("roles.deleted"), { undo: () => attempt(async () => { await api.post("/api/v1/roles", { name: role.name, permissions: role.permissions }); this.roles.reload(); }) });
		} });
	}

	// Bindings

	showBindings() {
		return this.bindings.show((all) => {
			if (all.length === 0) return empty(t("bindings.none"), t("bindings.none.text"), button({ label: t("bindings.new"), icon: "plus", kind: "primary", needs: "roles.manage", onclick: () => this.editBinding(null) }));
			return h("div", { class: "grid wide" }, all.map((b) => card(visible(b.name), { key: b.name, actions: h("span", { class: "tag" }, b.role) },
				facts([t("bindings.selector"), b.selector ? h("span", { class: "mono" }, visible(b.selector)) : t("bindings.all")], [t("bindings.subjects"), visible((b.subjects ?? []).join(", "))], [t("users.changed"), [visible(b.updatedBy), " ", age(b.updatedAt)]]),
				h("details", null, h("summary", null, t("users.permissions", { count: b.permissions?.length ?? 0 })), h("p", { class: "small mono" }, (b.permissions ?? []).join(", "))),
				h("div", { class: "row" }, button({ label: t("action.edit"), needs: "roles.manage", onclick: () => this.editBinding(b) }), h("a", { class: "button", href: link(["audit"], { kind: "binding", name: b.name }) }, t("users.audit")), button({ label: t("action.delete"), kind: "danger", needs: "roles.manage", onclick: () => this.deleteBinding(b) })))));
		});
	}

	async editBinding(binding) {
		const before = binding ? await attempt(() => api.get(api.url`/api/v1/bindings/${binding.name}`)) : { name: "", role: "VIEWER", selector: "", subjects: [] };
		if (!before) return undefined;
		const f = { name: before.name, role: before.role, selector: before.selector, subjects: before.subjects.join(", ") };
		let etag = before.$etag;
		const body = () => ({ role: f.role, selector: f.selector, subjects: list(f.subjects) });
		const put = (dryRun) => api.request("PUT", api.url`/api/v1/bindings/${f.name}`, { body: body(), dryRun, ifMatch: etag });
		const names = [...(this.users.data ?? []).map((u) => u.username), ...(this.accounts.data ?? []).map((a) => a.name)];
		return askForm({ title: binding ? t("bindings.edit", { name: binding.name }) : t("bindings.new"), label: t("action.save"), preview: () => put(true), mine: body, theirs: () => api.get(api.url`/api/v1/bindings/${f.name}`), keepMine: (theirs) => { etag = theirs.$etag; },
			fields: () => h("div", { class: "form" },
				binding ? null : field({ label: t("users.name"), name: "binding-name", value: f.name, required: true, autofocus: true, oninput: (v) => { f.name = v; } }),
				field({ label: t("users.role"), name: "binding-role", value: f.role, options: this.roleOptions(f.role), oninput: (v) => { f.role = v; } }),
				h("div", { class: "full" }, field({ label: t("bindings.selector"), name: "binding-selector", value: f.selector, placeholder: "game=bedwars", hint: t("bindings.selector.hint"), oninput: (v) => { f.selector = v; } })),
				h("div", { class: "full" }, field({ label: t("bindings.subjects"), name: "binding-subjects", value: f.subjects, required: true, hint: [t("bindings.subjects.hint"), " ", visible(names.slice(0, 12).join(", "))], oninput: (v) => { f.subjects = v; } })),
			),
			act: async () => {
				const next = await put(false);
				this.bindings.reload();
				say(t("bindings.saved"), binding ? { undo: () => attempt(async () => { await api.request("PUT", api.url`/api/v1/bindings/${f.name}`, { body: { role: before.role, selector: before.selector, subjects: before.subjects }, ifMatch: next.$etag }); this.bindings.reload(); }) } : {});
			} });
	}

	deleteBinding(b) {
		const path = api.url`/api/v1/bindings/${b.name}`;
		return confirm({ title: t("bindings.delete", { name: b.name }), text: h("p", null, t("bindings.delete.text")), label: t("action.delete"), danger: true, preview: () => api.request("DELETE", path, { dryRun: true }), show: () => facts([t("bindings.subjects"), visible((b.subjects ?? []).join(", "))], [t("users.role"), b.role], [t("bindings.selector"), visible(b.selector) || t("bindings.all")]), act: async () => {
			await api.request("DELETE", path);
			this.bindings.reload();
			say(t("bindings.deleted"), { undo: () => attempt(async () => { await api.request("PUT", path, { body: { role: b.role, selector: b.selector, subjects: b.subjects } }); this.bindings.reload(); }) });
		} });
	}

	// Service accounts

	showAccounts() {
		return this.accounts.show((all) => {
			if (all.length === 0) return empty(t("accounts.none"), t("accounts.none.text"), button({ label: t("accounts.new"), icon: "plus", kind: "primary", needs: "users.create", onclick: () => this.createAccount() }));
			return h("div", { class: "grid wide" }, all.map((a) => card(visible(a.name), { key: a.name, actions: h("span", { class: "tag" }, a.role) },
				facts([t("accounts.tokens"), number(a.tokens)], [t("users.tab.bindings"), visible((a.bindings ?? []).map((b) => b.name).join(", ")) || "–"], [t("users.created"), age(a.createdAt)]),
				h("div", { class: "row" }, button({ label: t("accounts.token"), needs: "tokens.create", onclick: () => this.createToken(a.name) }), button({ label: t("accounts.role"), needs: "users.update", onclick: () => this.accountRole(a) }), button({ label: t("action.delete"), kind: "danger", needs: "users.delete", onclick: () => this.deleteAccount(a) })))));
		});
	}

	createAccount() {
		const f = { name: "", role: "NONE" };
		return askForm({ title: t("accounts.new"), label: t("action.create"), fields: () => h("div", { class: "form" }, field({ label: t("users.name"), name: "account-name", value: f.name, required: true, autofocus: true, maxlength: 32, hint: t("users.name.hint"), oninput: (v) => { f.name = v; } }), field({ label: t("users.role"), name: "account-role", value: f.role, options: this.roleOptions(f.role), hint: t("accounts.role.hint"), oninput: (v) => { f.role = v; } })), act: async () => {
			await api.post("/api/v1/service-accounts", f);
			this.accounts.reload();
			say(t("accounts.made"));
		} });
	}

	async accountRole(a) {
		const path = api.url`/api/v1/service-accounts/${a.name}`;
		const before = await attempt(() => api.get(path));
		if (!before) return undefined;
		const f = { role: before.role };
		let etag = before.$etag;
		return askForm({ title: t("accounts.role"), label: t("action.save"), mine: () => f, theirs: () => api.get(path), keepMine: (theirs) => { etag = theirs.$etag; }, fields: () => field({ label: t("users.role"), name: "account-role", value: f.role, options: this.roleOptions(f.role), oninput: (v) => { f.role = v; } }), act: async () => {
			await api.request("PATCH", path, { body: f, ifMatch: etag });
			this.accounts.reload();
			say(t("users.saved"), { undo: () => attempt(async () => { await api.request("PATCH", path, { body: { role: before.role } }); this.accounts.reload(); }) });
		} });
	}

	deleteAccount(a) {
		const path = api.url`/api/v1/service-accounts/${a.name}`;
		return confirm({ title: t("accounts.delete", { name: a.name }), text: h("p", null, t("accounts.delete.text", { count: a.tokens })), label: t("action.delete"), danger: true, typed: a.name, preview: () => api.request("DELETE", path, { dryRun: true }), act: async () => {
			await api.request("DELETE", path);
			this.accounts.reload();
			this.tokens.reload();
			say(t("accounts.deleted"));
		} });
	}

	// Tokens

	showTokens() {
		const expiry = (at) => (at ? h("span", { class: Date.parse(at) < api.now() ? "muted" : "" }, age(at)) : t("tokens.never"));
		return h("div", { class: "page" },
			card(t("tokens.api"), null, h("p", { class: "muted" }, t("tokens.api.text")), this.tokens.show((all) => (all.length === 0 ? h("p", { class: "muted" }, t("tokens.none")) : h("ul", { class: "plain" }, all.map((x) => h("li", { key: x.id },
				h("span", { class: "grow" }, h("strong", null, visible(x.name)), h("span", { class: "block muted small" }, visible(x.user), x.kind === "PUBLIC" ? " · " + t("tokens.public") : "", x.scopes ? " · " + x.scopes.join(", ") : "", " · ", t("tokens.used"), " ", x.lastUsedAt ? age(x.lastUsedAt) : t("tokens.unused"))),
				h("span", { class: "small" }, t("tokens.expires"), " ", expiry(x.expiresAt)),
				button({ label: t("tokens.revoke"), title: t("tokens.revoke.name", { name: x.name }), kind: "small danger", needs: "tokens.revoke", onclick: () => this.revoke(x) }))))))),
			card(t("tokens.join"), null, h("p", { class: "muted" }, t("tokens.join.text")), this.joins.show((all) => (all.length === 0 ? h("p", { class: "muted" }, t("tokens.none")) : h("ul", { class: "plain" }, all.map((x) => h("li", { key: x.tokenId },
				h("span", { class: "grow" }, h("strong", null, visible(x.nodeId)), h("span", { class: "block muted small" }, x.usedAt ? [t("tokens.join.used"), " ", age(x.usedAt), " · ", visible(x.usedBy)] : [t("users.created"), " ", age(x.createdAt)])),
				h("span", { class: "badge " + (x.status === "ACTIVE" ? "good" : "idle") }, t("tokens.status." + x.status)),
				h("span", { class: "small" }, t("tokens.expires"), " ", expiry(x.expiresAt)),
				button({ label: t("tokens.revoke"), title: t("tokens.revoke.name", { name: x.nodeId }), kind: "small danger", needs: "tokens.revoke", onclick: () => this.revokeJoin(x) }))))))),
			ownTokens());
	}

	createToken(user) {
		const own = session.user()?.permissions ?? [];
		const f = { name: "", user, expires: "31536000", kind: "ALL", limited: false, scopes: new Set() };
		/** @type {[string, string][]} */
		const times = [["86400", "day"], ["2592000", "month"], ["7776000", "quarter"], ["31536000", "year"], ["0", "never"]].map(([v, k]) => /** @type {[string, string]} */ ([v, t("tokens.expires." + k)]));
		return askForm({ title: t("tokens.new"), label: t("action.create"), wide: true, fields: () => h("div", { class: "form" },
			field({ label: t("tokens.name"), name: "token-name", value: f.name, required: true, autofocus: true, maxlength: 64, hint: t("tokens.name.hint"), oninput: (v) => { f.name = v; } }),
			field({ label: t("tokens.for"), name: "token-user", value: f.user, options: [["", t("tokens.for.me", { name: session.user()?.username })], ...(this.accounts.data ?? []).map((a) => [a.name, a.name])], oninput: (v) => { f.user = v; } }),
			field({ label: t("tokens.expires"), name: "token-expires", value: f.expires, options: times, oninput: (v) => { f.expires = v; } }),
			field({ label: t("tokens.kind"), name: "token-kind", value: f.kind, options: [["ALL", t("tokens.kind.ALL")], ["PUBLIC", t("tokens.kind.PUBLIC")]], oninput: (v) => { f.kind = v; } }),
			h("div", { class: "full" }, field({ label: t("tokens.limited"), name: "token-limited", type: "checkbox", value: f.limited, oninput: (v) => { f.limited = v; } })),
			f.limited ? h("div", { class: "full" }, this.boxes(f.scopes, false)) : null,
		), act: async () => {
			if (f.limited && f.scopes.size === 0) throw new api.Failure(422, "", t("tokens.limited.none"));
			return api.post("/api/v1/api-tokens", { name: f.name, user: f.user || undefined, expiresInSeconds: Number(f.expires), kind: f.kind, scopes: f.limited ? [...f.scopes].filter((p) => own.includes(p)) : undefined });
		} }).then((made) => {
			if (!made?.token) return;
			this.tokens.reload();
			this.accounts.reload();
			showOnce({ title: t("tokens.made"), text: t("tokens.once"), secrets: [[t("tokens.token"), made.token]] });
		});
	}

	revoke(x) {
		return confirm({ title: t("tokens.revoke.name", { name: x.name }), text: h("p", null, t("tokens.revoke.text")), label: t("tokens.revoke"), danger: true, act: async () => {
			await api.request("DELETE", api.url`/api/v1/api-tokens/${x.id}`);
			this.tokens.reload();
			say(t("tokens.revoked"));
		} });
	}

	createJoin() {
		const f = { nodeId: "", ttl: "3600", again: false };
		return askForm({ title: t("tokens.join.new"), label: t("action.create"), fields: () => h("div", { class: "form" },
			field({ label: t("tokens.join.node"), name: "join-node", value: f.nodeId, required: true, autofocus: true, oninput: (v) => { f.nodeId = v; } }),
			field({ label: t("tokens.valid"), name: "join-ttl", value: f.ttl, options: [["900", t("tokens.valid.quarter")], ["3600", t("tokens.valid.hour")], ["86400", t("tokens.expires.day")], ["604800", t("tokens.valid.week")]], oninput: (v) => { f.ttl = v; } }),
			h("div", { class: "full" }, field({ label: t("tokens.again"), name: "join-again", type: "checkbox", value: f.again, hint: t("tokens.again.hint"), oninput: (v) => { f.again = v; } })),
		), act: () => api.post("/api/v1/admin/tokens", { nodeId: f.nodeId, ttlSeconds: Number(f.ttl), again: f.again || undefined }) }).then((made) => {
			if (!made?.token) return;
			this.joins.reload();
			showOnce({ title: t("tokens.join.made", { name: made.nodeId }), text: [h("p", null, t("tokens.once")), made.warning ? h("p", null, visible(made.warning)) : null], secrets: [[t("tokens.token"), made.token], [t("tokens.join.command"), "nodeagent join -dir /var/lib/orrery/nodeagent -" + (f.again ? "force -" : "")]] });
		});
	}

	revokeJoin(x) {
		return confirm({ title: t("tokens.revoke.name", { name: x.nodeId }), text: h("p", null, t("tokens.join.revoke")), label: t("tokens.revoke"), danger: true, act: async () => {
			await api.request("DELETE", api.url`/api/v1/admin/tokens/${x.tokenId}`);
			this.joins.reload();
			say(t("tokens.revoked"));
		} });
	}
}

function passwordField(f, key) {
	return field({ label: t("users.newPassword"), name: "new-" + key, type: "password", value: f[key], required: true, minlength: 8, autocomplete: "new-password", hint: t("users.newPassword.hint"), oninput: (v) => { f[key] = v; } });
}

/** takeTokens stores the tokens that come with a change of one's own user. */
function takeTokens(answer) {
	if (!answer?.token) return;
	const { token, refreshToken, expiresInSeconds, loginExpiresAt, ...user } = answer;
	session.begin({ token, refreshToken, expiresInSeconds, loginExpiresAt, user });
}
