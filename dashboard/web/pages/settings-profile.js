// The reader's own account: password, second factor and logins.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import * as session from "../core/session.js";
import { link } from "../core/router.js";
import { time, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { editAvatar } from "../parts/avatar.js";
import { askForm, showOnce } from "../parts/form.js";
import { sessionList } from "../parts/sessions.js";
import { age, button, card, failure, facts, field, Resource, say } from "../parts/ui.js";
import { copy, saveText } from "../parts/transfer.js";

/** Profile is the tab of the reader's account. */
export class Profile {
	constructor() {
		const path = api.url`/api/v1/users/${session.user()?.username ?? ""}`;
		this.path = path;
		this.factor = new Resource(() => api.get("/api/v1/auth/second-factor"));
		this.sessions = new Resource(() => api.all(path + "/sessions"));
		this.enrolment = /** @type {any} */ (null);
		this.password = { current: "", next: "", again: "", tokens: false, busy: false, error: /** @type {any} */ (null) };
		this.code = { value: "", busy: false, error: /** @type {any} */ (null) };
	}

	view() {
		const u = session.user() ?? {};
		return h("div", { class: "page" },
			card(visible(u.username), { actions: button({ label: t("settings.logout"), onclick: logOut }) },
				editAvatar(u),
				facts([t("users.role"), h("span", { class: "tag" }, u.role)], [t("users.email"), visible(u.email) || "–"], [t("users.provider"), visible(u.provider ?? t("users.local"))], [t("users.created"), age(u.createdAt)]),
				u.bindings?.length ? h("p", { class: "small" }, h("span", { class: "muted" }, t("users.tab.bindings") + ": "), u.bindings.map((b) => visible(b.name) + " (" + b.role + ")").join(", ")) : null,
				h("details", null, h("summary", null, t("users.permissions", { count: u.permissions?.length ?? 0 })), h("p", { class: "small mono" }, (u.permissions ?? []).join(", "))),
				session.allowed("audit.view") ? h("p", null, h("a", { href: link(["audit"], { user: u.username }) }, t("settings.myAudit"))) : null),
			h("div", { class: "grid wide" }, u.provider ? null : this.showPassword(u), this.showFactor(u)),
			card(t("sessions.title"), null, h("p", { class: "muted" }, t("settings.sessions.text")), this.sessions.show((all) => sessionList(all, { end: (s) => api.request("DELETE", this.path + api.url`/sessions/${s.id}`), endAll: () => api.request("DELETE", this.path + "/sessions"), reload: () => this.sessions.reload(), who: u.username, ended: () => session.end() }))),
		);
	}

	showPassword(u) {
		const p = this.password;
		const save = async (ev) => {
			ev.preventDefault();
			if (p.next !== p.again) return void (p.error = new api.Failure(422, "", t("settings.password.differ")));
			p.busy = true;
			p.error = null;
			try {
				const answer = await api.post("/api/v1/auth/change-password", { currentPassword: p.current, newPassword: p.next, endApiTokens: p.tokens }, { keepLogin: true });
				session.begin({ ...answer, user: session.user() });
				this.password = { current: "", next: "", again: "", tokens: false, busy: false, error: null };
				this.sessions.reload();
				say(t("settings.password.done"));
			} catch (err) {
				p.error = err;
			}
			p.busy = false;
		};
		return card(t("settings.password"), null, h("form", { class: "page", onsubmit: save },
			h("input", { type: "text", name: "username", autocomplete: "username", value: u.username ?? "", class: "hidden", tabindex: "-1", "aria-hidden": "true", readOnly: true }),
			field({ label: t("settings.password.current"), name: "current-password", type: "password", autocomplete: "current-password", required: true, value: p.current, oninput: (v) => { p.current = v; } }),
			field({ label: t("users.newPassword"), name: "new-password", type: "password", autocomplete: "new-password", required: true, minlength: 8, hint: t("users.newPassword.hint"), value: p.next, oninput: (v) => { p.next = v; } }),
			field({ label: t("settings.password.again"), name: "new-password-again", type: "password", autocomplete: "new-password", required: true, value: p.again, oninput: (v) => { p.again = v; } }),
			field({ label: t("settings.password.tokens"), name: "end-tokens", type: "checkbox", value: p.tokens, hint: t("settings.password.hint"), oninput: (v) => { p.tokens = v; } }),
			p.error ? failure(p.error) : null,
			h("div", { class: "row" }, button({ label: t("settings.password.do"), kind: "primary", type: "submit", busy: p.busy, onclick: undefined })),
		));
	}

	showFactor(u) {
		return card(t("users.factor"), null, this.factor.show((f) => {
			if (this.enrolment) return this.showEnrolment();
			if (f.enabled) return h("div", { class: "page" },
				h("p", null, h("span", { class: "badge good" }, t("users.yes")), " ", h("span", { class: "muted" }, t("settings.factor.since"), " ", age(f.enabledAt))),
				h("p", { class: f.recoveryCodesLeft < 3 ? "notice warn" : "muted" }, t("settings.factor.left", { count: f.recoveryCodesLeft })),
				h("div", { class: "row" }, button({ label: t("settings.factor.disable"), kind: "danger", onclick: () => this.disable() })));
			return h("div", { class: "page" },
				h("p", null, h("span", { class: "badge idle" }, t("users.no"))),
				h("p", { class: "muted" }, u.provider ? t("settings.factor.provider") : t("settings.factor.text")),
				u.provider ? null : h("div", { class: "row" }, button({ label: t("settings.factor.begin"), kind: "primary", onclick: () => this.enrol() })));
		}));
	}

	async enrol() {
		const f = { password: "" };
		const made = await askForm({ title: t("settings.factor.begin"), label: t("settings.factor.next"), fields: () => h("div", { class: "page" }, h("p", null, t("settings.factor.password")), field({ label: t("settings.password.current"), name: "factor-password", type: "password", autocomplete: "current-password", required: true, autofocus: true, value: f.password, oninput: (v) => { f.password = v; } })), act: () => api.post("/api/v1/auth/second-factor", { currentPassword: f.password }) });
		if (made?.secret) this.enrolment = made;
	}

	showEnrolment() {
		const e = this.enrolment, c = this.code;
		const confirmCode = async (ev) => {
			ev.preventDefault();
			c.busy = true;
			c.error = null;
			try {
				const answer = await api.post("/api/v1/auth/second-factor/confirm", { code: c.value.replace(/\s/g, "") });
				this.enrolment = null;
				this.code = { value: "", busy: false, error: null };
				this.factor.reload();
				live.checkUser();
				showCodes(answer.recoveryCodes);
			} catch (err) {
				c.error = err;
			}
			c.busy = false;
		};
		return h("form", { class: "page", onsubmit: confirmCode },
			h("p", null, t("settings.factor.enter")),
			h("div", { class: "secret" }, h("h3", null, t("settings.factor.secret")), h("pre", { class: "text", tabindex: "0", role: "region", "aria-label": t("settings.factor.secret") }, e.secret.replace(/(.{4})/g, "$1 ").trim()), h("div", { class: "row" }, button({ label: t("action.copy"), icon: "copy", onclick: () => copy(e.secret) }))),
			h("div", { class: "secret" }, h("h3", null, t("settings.factor.uri")), h("pre", { class: "text", tabindex: "0", role: "region", "aria-label": t("settings.factor.uri") }, h("a", { href: e.uri }, e.uri)), h("div", { class: "row" }, button({ label: t("settings.factor.copyUri"), icon: "copy", onclick: () => copy(e.uri) }))),
			field({ label: t("login.code"), name: "factor-code", value: c.value, inputmode: "numeric", autocomplete: "one-time-code", required: true, hint: t("settings.factor.code", { time: time(e.expiresAt) }), oninput: (v) => { c.value = v; } }),
			c.error ? failure(c.error) : null,
			h("div", { class: "row" }, button({ label: t("settings.factor.enable"), kind: "primary", type: "submit", busy: c.busy, onclick: undefined }), button({ label: t("action.cancel"), onclick: () => { this.enrolment = null; } })));
	}

	disable() {
		const f = { code: "" };
		return askForm({ title: t("settings.factor.disable"), label: t("settings.factor.disable"), danger: true, fields: () => h("div", { class: "page" }, h("p", null, t("settings.factor.disable.text")), field({ label: t("login.code"), name: "disable-code", value: f.code, inputmode: "numeric", autocomplete: "one-time-code", required: true, autofocus: true, hint: t("login.code.hint"), oninput: (v) => { f.code = v; } })), act: async () => {
			await api.post("/api/v1/auth/second-factor/disable", { code: f.code.replace(/\s/g, "") });
			this.factor.reload();
			live.checkUser();
			say(t("users.factor.removed"));
		} });
	}
}

/** showCodes shows recovery codes once. */
function showCodes(codes) {
	const text = codes.join("\n");
	return showOnce({ title: t("settings.factor.codes"), text: [h("p", null, t("settings.factor.codes.text")), h("p", null, button({ label: t("action.download"), onclick: () => saveText(text + "\n", "orrery-recovery-codes.txt") }))], secrets: [[t("settings.factor.codes"), text]] });
}

/** logOut ends the login on the server and in all tabs. */
export async function logOut() {
	try {
		await api.post("/api/v1/auth/logout");
	} catch {
		// The tokens are forgotten here in any case.
	}
	live.stop();
	session.end();
	location.hash = "#/"; // the next user may not see this page
}
