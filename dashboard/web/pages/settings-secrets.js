// Secrets: names, keys and who uses them. No answer of the server has a value.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link } from "../core/router.js";
import { number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "../parts/dialog.js";
import { changed, reloadOn } from "../parts/follow.js";
import { askForm } from "../parts/form.js";
import { put, records } from "../parts/records.js";
import { age, attempt, button, card, empty, facts, field, Resource, say } from "../parts/ui.js";

const pathOf = (name) => api.url`/api/v1/secrets/${name}`;
/** own is the name of a value without a key. */
const own = (key) => (key === "" ? h("span", { class: "muted" }, t("secrets.own")) : h("code", null, visible(key)));

/** Secrets is the tab of secrets. */
export class Secrets {
	constructor() {
		this.list = new Resource(() => api.all("/api/v1/secrets"));
		this.sealing = new Resource(() => api.get("/api/v1/system/sealing-key"));
		this.end = reloadOn(changed("secret", "template-source", "sealing-key"), () => {
			this.list.reload();
			this.sealing.reload();
		});
	}

	removed() {
		this.end();
	}

	view() {
		const make = () => button({ label: t("secrets.new"), icon: "plus", kind: "primary", onclick: () => this.edit(null) });
		return h("div", { class: "page" },
			h("div", { class: "row apart" }, h("p", { class: "muted" }, t("secrets.about")), this.list.data?.length ? make() : null),
			this.list.show((all) => records(all, { words: (s) => s.name + " " + s.keys.join(" ") + " " + s.usedBy.join(" "), draw: (s) => this.secret(s), none: empty(t("secrets.none"), t("secrets.none.text"), make()) })),
			this.sealing.show((k) => this.key(k)));
	}

	/** key draws the versions of the key that seals all of this, the newest first. */
	key(k) {
		return card(t("sealing.title"), { actions: button({ label: t("sealing.rotate"), onclick: () => confirm({ title: t("sealing.rotate"), text: h("p", null, t("sealing.rotate.text")), label: t("sealing.rotate"), act: async () => { await api.post("/api/v1/system/sealing-key/rotate"); say(t("sealing.rotated")); this.sealing.reload(); } }) }) },
			h("p", { class: "muted" }, t("sealing.text")),
			k.versions.length === 0 ? h("p", null, t("sealing.none")) : h("ul", { class: "plain" }, [...k.versions].reverse().map((v) => h("li", { key: v.id }, h("code", { class: "grow" }, visible(v.id)), v.id === k.current ? h("span", { class: "badge good" }, t("sealing.current")) : null, age(v.createdAt)))));
	}

	secret(s) {
		return card(visible(s.name), { key: s.name },
			facts([t("secrets.keys"), s.keys.map((k, i) => [i ? ", " : "", own(k)])], [t("secrets.groups"), s.selector ? h("code", null, visible(s.selector)) : t("secrets.groups.all")], [t("secrets.version"), number(s.version)], [t("users.changed"), [visible(s.updatedBy), " ", age(s.updatedAt)]]),
			s.usedBy.length ? h("details", null, h("summary", null, t("secrets.used", { count: s.usedBy.length })), h("ul", { class: "plain small" }, s.usedBy.map((u) => h("li", { key: u }, user(u))))) : h("p", { class: "muted small" }, t("secrets.unused")),
			h("div", { class: "row" },
				button({ label: t("secrets.write"), onclick: () => this.edit(s) }),
				h("a", { class: "button", href: link(["audit"], { kind: "secret", name: s.name }) }, t("users.audit")),
				button({ label: t("action.delete"), kind: "danger", disabled: s.usedBy.length > 0, title: s.usedBy.length ? t("secrets.delete.used") : undefined, onclick: () => this.remove(s) })));
	}

	async edit(secret) {
		const before = secret ? await attempt(() => api.get(pathOf(secret.name))) : null;
		if (secret && !before) return undefined;
		const f = { name: before?.name ?? "", selector: before?.selector ?? "", values: (before?.keys ?? [""]).map((key) => ({ key, value: "" })) };
		let etag = before?.$etag;
		// Without a new value, the present values stay.
		const keeps = () => secret && f.values.every((v) => v.value === "") && f.values.map((v) => v.key.trim()).join() === before.keys.join();
		const body = () => ({ selector: f.selector, values: keeps() ? undefined : Object.fromEntries(f.values.map((v) => [v.key.trim(), v.value])) });
		const several = () => f.values.length > 1 || f.values[0].key !== "";
		/** @type {(dryRun: boolean) => Promise<any>} */
		const send = (dryRun) => put(pathOf(f.name.trim()), body(), { create: !secret, ifMatch: etag, dryRun });
		return askForm({ title: secret ? t("secrets.edit", { name: visible(secret.name) }) : t("secrets.new"), label: t("action.save"), preview: () => send(true), theirs: secret ? () => api.get(pathOf(secret.name)) : undefined, mine: () => ({ selector: f.selector, keys: f.values.map((v) => v.key.trim()).sort() }), keepMine: (theirs) => { etag = theirs.$etag; },
			show: (x) => facts([t("secrets.groups"), x.secret.selector ? visible(x.secret.selector) : t("secrets.groups.all")], [t("secrets.version"), number(x.secret.version)], [t("secrets.keys"), x.secret.keys.map((k, i) => [i ? ", " : "", own(k)])], [t("secrets.used.by"), x.secret.usedBy.length ? x.secret.usedBy.map(visible).join(", ") : "–"]),
			fields: () => h("div", { class: "page" },
				secret ? h("p", null, t("secrets.write.text")) : field({ label: t("users.name"), name: "secret-name", value: f.name, required: true, autofocus: true, hint: t("secrets.name.hint"), oninput: (v) => { f.name = v; } }),
				field({ label: t("secrets.groups"), name: "secret-groups", value: f.selector, class: "mono", placeholder: "game=bedwars", hint: t("secrets.groups.hint"), oninput: (v) => { f.selector = v; } }),
				f.values.map((v, i) => h(several() ? "fieldset" : "div", { class: "page tight", key: "v" + i }, several() ? h("legend", null, t("secrets.value.of", { number: i + 1 })) : null,
					several() ? field({ label: t("secrets.key"), name: "secret-key-" + i, value: v.key, autocomplete: "off", placeholder: t("secrets.own"), oninput: (x) => { v.key = x; } }) : null,
					field({ label: t("secrets.value"), name: "secret-value-" + i, value: v.value, rows: 2, class: "mono", required: !secret, autocomplete: "off", spellcheck: "false", oninput: (x) => { v.value = x; } }),
					f.values.length > 1 ? h("div", { class: "row" }, button({ label: t("secrets.key.remove"), kind: "small", onclick: () => { f.values.splice(i, 1); } })) : null)),
				h("div", { class: "row" }, button({ label: t("secrets.key.add"), icon: "plus", kind: "small", onclick: () => { f.values.push({ key: "", value: "" }); } })),
			),
			act: async () => {
				const names = f.values.map((v) => v.key.trim());
				if (new Set(names).size < names.length) throw new api.Failure(422, "", t("secrets.key.twice"));
				await send(false);
				this.list.reload();
				say(secret ? t("secrets.saved") : t("secrets.made"));
			} });
	}

	remove(s) {
		return confirm({ title: t("secrets.delete", { name: visible(s.name) }), text: h("p", null, t("secrets.delete.text")), label: t("action.delete"), danger: true, typed: s.name, preview: () => api.del(pathOf(s.name), { dryRun: true }), act: async () => {
			await api.del(pathOf(s.name));
			this.list.reload();
			say(t("secrets.deleted"));
		} });
	}
}

/** user draws what uses a secret, with a link to it. */
function user(text) {
	const [, kind, name] = /^(group|template|instance) (.+)$/.exec(text) ?? [];
	return kind ? h("a", { href: link([kind + "s", name]) }, visible(text)) : visible(text);
}
