// Sharing a text by a link.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link } from "../core/router.js";
import { allowed } from "../core/session.js";
import { time } from "../core/format.js";
import { t } from "../core/text.js";
import { askForm, showOnce } from "./form.js";
import { button, field } from "./ui.js";

/**
 * shareButton draws a button that shares something, for users who may share.
 * @param {{title: string, path: string | (() => string), limit?: number, most?: number, body?: any, once?: boolean, kind?: string, label?: string, fields?: () => any, done?: () => any}} o
 * limit and most are the usual and the largest number of lines. once is false for what is usually read more than once.
 */
export function shareButton(o) {
	return allowed("share.invoke") ? button({ label: o.label ?? t("share.do"), kind: o.kind, onclick: () => shareText(o) }) : null;
}

async function shareText(o) {
	const f = { expiry: "1d", isPrivate: false, burnAfterRead: o.once !== false, limit: String(o.limit ?? "") };
	const made = await askForm({ title: o.title, label: t("share.do"), fields: () => h("div", { class: "form" },
		o.fields?.(),
		field({ label: t("share.expiry"), name: "share-expiry", value: f.expiry, options: ["1h", "1d", "30d", "never"].map((x) => [x, t("share.expiry." + x)]), oninput: (v) => { f.expiry = v; } }),
		o.limit ? field({ label: t("share.limit"), name: "share-limit", type: "number", min: 1, max: o.most, required: true, value: f.limit, oninput: (v) => { f.limit = v; } }) : null,
		h("div", { class: "full page" },
			field({ label: t("share.private"), name: "share-private", type: "checkbox", value: f.isPrivate, hint: t("share.private.hint"), oninput: (v) => { f.isPrivate = v; } }),
			field({ label: t("share.once"), name: "share-once", type: "checkbox", value: f.burnAfterRead, hint: t("share.once.hint"), oninput: (v) => { f.burnAfterRead = v; } })),
	), act: () => api.post(typeof o.path === "string" ? o.path : o.path(), { expiry: f.expiry, isPrivate: f.isPrivate, burnAfterRead: f.burnAfterRead, limit: o.limit ? Number(f.limit) : undefined, ...o.body }) });
	if (!made?.shareId) return;
	o.done?.();
	const secrets = /** @type {[string, string][]} */ ([[t("share.link"), shareLink({ ...made, id: made.shareId })]]);
	if (!made.isPrivate) secrets.push([t("share.raw"), made.rawUrl]);
	showOnce({ title: t("share.made"), done: t("action.close"), text: [h("p", null, made.isPrivate ? t("share.made.private") : t("share.made.text")), made.burnAfterRead ? h("p", null, t("share.made.once")) : null, h("p", null, made.expiresAt ? t("share.made.until", { time: time(made.expiresAt) }) : t("share.made.never"))], secrets });
}

/** shareLink returns the link to give away. A private text is read here, with a login. */
export function shareLink(s) {
	return s.isPrivate ? location.origin + "/" + link(["settings"], { tab: "shares", share: s.id }) : s.url;
}
