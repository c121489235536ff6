// The catalog: versions of server software that groups can run.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link } from "../core/router.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "../parts/dialog.js";
import { changed, reloadOn } from "../parts/follow.js";
import { askForm, objectDiff } from "../parts/form.js";
import { records } from "../parts/records.js";
import { age, attempt, button, card, empty, field, Resource, say } from "../parts/ui.js";

const root = "/api/v1/catalog";
const pathOf = (v) => api.url`/api/v1/catalog/${v.platform}/versions/${v.version}`;
const etagOf = (v) => '"' + v.revision + '"';

/** users returns the groups that run a version. */
const users = (v) => [...live.groups.values()].filter((g) => (g.platform ?? "").toUpperCase() === v.platform && (g.platformVersion ? g.platformVersion === v.version : v.recommended)).map((g) => g.name).sort();

/** Catalog is the tab of server software. */
export class Catalog {
	constructor() {
		this.list = new Resource(() => api.all(root));
		this.end = reloadOn(changed("catalog"), () => this.list.reload());
	}

	removed() {
		this.end();
	}

	view() {
		const add = () => button({ label: t("catalog.new"), icon: "plus", kind: "primary", needs: "catalog.manage", onclick: () => this.edit(null, "") });
		return h("div", { class: "page" },
			h("div", { class: "row apart" }, h("p", { class: "muted" }, t("catalog.about")), this.list.data?.length ? add() : null),
			this.list.show((all) => records([...Map.groupBy(all, (v) => v.platform)], {
				words: ([platform, list]) => platform + " " + list.map((v) => v.version).join(" "),
				draw: ([platform, list]) => this.platform(platform, list),
				none: empty(t("catalog.none"), t("catalog.none.text"), add()),
			})));
	}

	platform(name, list) {
		return card(visible(name), { key: name, actions: button({ label: t("catalog.add"), title: t("catalog.add.to", { name: visible(name) }), kind: "small", needs: "catalog.manage", onclick: () => this.edit(null, name) }) },
			h("ul", { class: "plain" }, list.map((v) => {
				const groups = users(v);
				return h("li", { key: v.version },
					h("span", { class: "grow" }, h("strong", null, visible(v.version)), " ", v.recommended ? h("span", { class: "badge good" }, t("catalog.recommended")) : null, " ", v.category === "PROXY" ? h("span", { class: "tag" }, t("catalog.PROXY")) : null,
						h("span", { class: "block muted small" }, v.sha256 ? h("code", { title: v.sha256 }, v.sha256.slice(0, 12)) : t("catalog.noHash"), " · ", h("span", { title: visible(v.downloadUrl) }, host(v.downloadUrl)), " · ", age(v.addedAt)),
						groups.length ? h("span", { class: "block small" }, h("span", { class: "muted" }, t("catalog.groups") + ": "), groups.slice(0, 5).map((g, i) => [i ? ", " : "", h("a", { href: link(["groups", g]) }, visible(g))]), groups.length > 5 ? " …" : "") : null),
					h("span", { class: "row" }, v.recommended ? null : button({ label: t("catalog.recommend"), title: t("catalog.recommend.name", { name: visible(v.version) }), kind: "small", needs: "catalog.manage", onclick: () => this.recommend(v, list) }),
						button({ label: t("action.edit"), title: t("catalog.edit", { name: visible(v.platform + " " + v.version) }), kind: "small", needs: "catalog.manage", onclick: () => this.edit(v, name) }),
						button({ label: t("action.delete"), title: t("catalog.delete", { name: visible(v.platform + " " + v.version) }), kind: "small danger", needs: "catalog.manage", onclick: () => this.remove(v) })));
			})));
	}

	async send(request, done, undo) {
		await request();
		this.list.reload();
		say(done, undo ? { undo: () => attempt(async () => { await undo(); this.list.reload(); }) } : {});
	}

	recommend(v, list) {
		const before = list.find((x) => x.recommended);
		const put = (x) => api.request("PUT", pathOf(x) + "/recommended");
		const follows = [...live.groups.values()].filter((g) => (g.platform ?? "").toUpperCase() === v.platform && !g.platformVersion).map((g) => g.name);
		return confirm({ title: t("catalog.recommend.name", { name: visible(v.version) }), label: t("catalog.recommend"), text: h("div", { class: "page tight" }, h("p", null, t("catalog.recommend.text")), follows.length ? h("p", null, t("catalog.groups") + ": " + follows.map(visible).join(", ")) : null), act: () => this.send(() => put(v), t("catalog.recommend.done", { name: visible(v.version) }), before ? () => put(before) : undefined) });
	}

	edit(v, platform) {
		const before = v ? { version: v.version, downloadUrl: v.downloadUrl, sha256: v.sha256, category: v.category, configFormat: v.configFormat } : { version: "", downloadUrl: "", sha256: "", category: "SERVER", configFormat: "" };
		const f = { platform, ...before };
		let etag = v ? etagOf(v) : undefined;
		const body = () => ({ version: f.version.trim(), downloadUrl: f.downloadUrl.trim(), sha256: f.sha256.trim(), category: f.category, configFormat: f.configFormat });
		const theirs = async () => {
			const now = (await api.all(root, { platform })).find((x) => x.version === v.version);
			if (now) etag = etagOf(now);
			return now ?? null;
		};
		return askForm({ title: v ? t("catalog.edit", { name: visible(v.platform + " " + v.version) }) : t("catalog.new"), label: v ? t("action.save") : t("catalog.add"), mine: body, theirs: v ? theirs : undefined, fields: () => h("div", { class: "form" },
			v ? null : field({ label: t("field.platform"), name: "catalog-platform", value: f.platform, required: true, autofocus: !platform, placeholder: "PAPER", list: [...new Set((this.list.data ?? []).map((x) => x.platform))], oninput: (x) => { f.platform = x.toUpperCase(); } }),
			field({ label: t("catalog.version"), name: "catalog-version", value: f.version, required: true, autofocus: Boolean(platform), placeholder: "1.21.4", oninput: (x) => { f.version = x; } }),
			h("div", { class: "full" }, field({ label: t("catalog.url"), name: "catalog-url", type: "url", value: f.downloadUrl, required: true, oninput: (x) => { f.downloadUrl = x; } })),
			h("div", { class: "full" }, field({ label: t("catalog.sha256"), name: "catalog-sha256", value: f.sha256, class: "mono", pattern: "\\s*[0-9a-fA-F]{64}\\s*", hint: t("catalog.sha256.hint"), oninput: (x) => { f.sha256 = x; } })),
			field({ label: t("catalog.category"), name: "catalog-category", value: f.category, options: ["SERVER", "PROXY"].map((c) => [c, t("catalog." + c)]), oninput: (x) => { f.category = x; } }),
			field({ label: t("catalog.configFormat"), name: "catalog-format", value: f.configFormat, maxlength: 64, hint: t("catalog.configFormat.hint"), oninput: (x) => { f.configFormat = x; } }),
		), act: () => {
			if (!v) return this.send(() => api.post(api.url`/api/v1/catalog/${f.platform.trim()}/versions`, body()), t("catalog.added"));
			const change = Object.fromEntries(objectDiff(before, body()).map((d) => [d.field, d.to]));
			return this.send(() => api.patch(pathOf(v), change, { ifMatch: etag }), t("catalog.saved"), before.sha256 ? () => api.patch(pathOf({ ...v, version: f.version.trim() }), before) : undefined);
		} });
	}

	remove(v) {
		return confirm({ title: t("catalog.delete", { name: visible(v.platform + " " + v.version) }), text: h("p", null, t("catalog.delete.text")), label: t("action.delete"), danger: true, act: () => this.send(() => api.del(pathOf(v), { ifMatch: etagOf(v) }), t("catalog.deleted"), async () => {
			await api.post(api.url`/api/v1/catalog/${v.platform}/versions`, { version: v.version, downloadUrl: v.downloadUrl, sha256: v.sha256, category: v.category, configFormat: v.configFormat });
			if (v.recommended) await api.request("PUT", pathOf(v) + "/recommended");
		}) });
	}
}

/** host shortens the address of a download. */
function host(url) {
	try {
		return visible(new URL(url).host);
	} catch {
		return visible(url);
	}
}
