// The versions of a template: what changed, going back, and archives.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { route, setQuery } from "../core/router.js";
import { allowed } from "../core/session.js";
import { bytes, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { changes } from "../parts/changes.js";
import { confirm } from "../parts/dialog.js";
import { age, attempt, button, card, Resource, say } from "../parts/ui.js";
import { download } from "../parts/download.js";

const many = 50;

/** Versions is the tab of the versions. */
export class Versions {
	constructor(page) {
		this.page = page;
		this.list = /** @type {any} */ (null);
		this.compared = /** @type {Resource | null} */ (null);
		this.pair = "";
		this.shown = many;
	}

	reload() {
		this.list?.reload();
	}

	view() {
		this.list ??= new Resource(() => api.get(this.page.base + "/versions"));
		return this.list.show((all) => {
			const query = route().query;
			const current = all.find((v) => v.current) ?? all[0];
			const to = query.get("to") ?? current?.hash, before = all[all.findIndex((v) => v.hash === to) + 1];
			const from = query.get("from") ?? before?.hash ?? "";
			return h("div", { class: "page" },
				all.length > 1 ? this.compare(all, from, to) : null,
				card(t("versions.all"), null, h("ul", { class: "plain" }, all.slice(0, this.shown).map((v) => this.version(v, current))), all.length > this.shown ? button({ label: t("action.more"), onclick: () => { this.shown += many; } }) : null),
			);
		});
	}

	compare(all, from, to) {
		const pair = from + " " + to;
		if (pair !== this.pair && from) {
			this.pair = pair;
			this.compared = new Resource(() => api.get(this.page.base + "/diff", { from, to }));
		}
		const choice = (label, name, value) => h("label", { class: "compare-side" }, h("span", null, label), h("select", { onchange: (ev) => setQuery({ [name]: ev.target.value }) }, all.map((v) => h("option", { value: v.hash, selected: v.hash === value }, v.hash.slice(0, 8) + " · " + visible(v.message || v.author).slice(0, 60) + (v.current ? " · " + t("versions.current") : "")))));
		return card(t("versions.compare"), null,
			h("div", { class: "compare" }, choice(t("versions.from"), "from", from), choice(t("versions.to"), "to", to)),
			this.compared?.show((d) => changes(d.files, { truncated: d.truncated, scope: pair, texts: allowed("templates.content") ? (c) => api.get(this.page.base + "/diff", { from, to, path: c.path }) : undefined })),
		);
	}

	version(v, current) {
		return h("li", { key: v.hash },
			h("span", { class: "grow" }, h("strong", null, visible(v.message) || t("versions.noMessage")), v.current ? [" ", h("span", { class: "badge good" }, t("versions.current"))] : null, h("span", { class: "block muted small" }, h("span", { class: "mono", title: v.hash }, v.hash.slice(0, 12)), " · ", visible(v.author), " · ", age(v.publishedAt), " · ", t("template.size", { files: number(v.files), size: bytes(v.sizeBytes) }))),
			h("span", { class: "row" },
				v.current ? null : button({ label: t("versions.compareWith"), kind: "small", onclick: () => { setQuery({ from: v.hash, to: current.hash }); scrollTo(0, 0); } }),
				button({ label: t("template.export"), kind: "small", needs: "templates.content", onclick: () => attempt(() => download(this.page.base + "/export", { format: "zip", version: v.hash }, this.page.name.replaceAll("/", "-") + "-" + v.hash.slice(0, 8) + ".zip")) }),
				v.current ? null : button({ label: t("versions.rollback"), kind: "small", needs: "templates.update", onclick: () => this.rollback(v, current) }),
				v.current ? null : button({ label: t("action.delete"), kind: "small danger", needs: "templates.delete", onclick: () => this.remove(v) }),
			));
	}

	rollback(v, current) {
		const post = (hash, dryRun) => api.request("POST", this.page.base + "/rollback", { body: { hash }, dryRun, ifMatch: dryRun ? undefined : this.page.head.data?.$etag });
		return confirm({
			title: t("versions.rollback.title", { hash: v.hash.slice(0, 8) }), text: h("p", null, t("versions.rollback.text")), label: t("versions.rollback"), danger: true,
			preview: () => post(v.hash, true),
			show: (x) => changes(x.files, { truncated: x.truncated, scope: "r", texts: allowed("templates.content") ? (c) => api.get(this.page.base + "/diff", { from: current.hash, to: v.hash, path: c.path }) : undefined }),
			act: async () => {
				await post(v.hash, false);
				this.page.changed();
				say(t("versions.rolledBack"), { undo: async () => {
					await this.page.head.reload();
					await post(current.hash, false);
					this.page.changed();
				} });
			},
		});
	}

	remove(v) {
		const path = api.url`/versions/${v.hash}`;
		return confirm({ title: t("versions.delete", { hash: v.hash.slice(0, 8) }), text: h("p", null, t("versions.delete.text")), label: t("action.delete"), danger: true, preview: () => api.request("DELETE", this.page.base + path, { dryRun: true }), act: async () => {
			await api.request("DELETE", this.page.base + path);
			this.list.reload();
			say(t("versions.deleted"));
		} });
	}
}
