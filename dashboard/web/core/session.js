// The login of this browser. All tabs share it: one tab refreshes the tokens for all, because a
// refresh token that is used twice ends the login.
import { redraw } from "./dom.js";
import { matches } from "./selector.js";

const storageKey = "orrery.session";
/** left is stored in place of a login that its user ended. */
const left = "null";

/**
 * @typedef {{token: string, refreshToken?: string, refreshAt: number, user: any}} Session
 * refreshAt is in milliseconds of this machine's clock.
 */

/** @type {Session | null} */
let session = read();
/** @type {Promise<void> | null} */
let refreshing = null;
/** expired is set when the login ended while the page was in use. */
let expired = false;

function read() {
	try {
		return JSON.parse(localStorage.getItem(storageKey) ?? "null");
	} catch {
		return null;
	}
}

/** shown is the name of the user whose data the page shows. */
let shown = session?.user?.username;

function write(next) {
	session = next;
	if (next) shown = next.user?.username;
	if (next) localStorage.setItem(storageKey, JSON.stringify(next));
	else localStorage.removeItem(storageKey);
	redraw();
}

/** current returns the login, or null. */
export function current() {
	return session;
}

/** hasExpired reports whether the login ended while the page was in use. */
export function hasExpired() {
	return expired;
}

/** user returns the logged-in user. */
export function user() {
	return session?.user ?? null;
}

/**
 * allowed reports whether the user has a permission, in every group or through a binding; with
 * labels, through a binding that counts in the group with these labels. The server decides each
 * request itself. This only decides which buttons are shown.
 * @param {string} permission
 * @param {Record<string, string>} [labels]
 */
export function allowed(permission, labels) {
	const u = user();
	if (!u) return false;
	if (((labels && u.fleetPermissions) ?? u.permissions ?? []).includes(permission)) return true;
	return (u.bindings ?? []).some((b) => (b.permissions ?? []).includes(permission) && (!labels || matches(b.selector, labels)));
}

/**
 * allowedEverywhere reports whether the user has a permission in the whole fleet. Bindings with a
 * selector do not allow to change the record of a group.
 * @param {string} permission
 */
export function allowedEverywhere(permission) {
	const u = user();
	return (u?.fleetPermissions ?? u?.permissions ?? []).includes(permission);
}

/**
 * begin stores the answer of a login.
 * @param {any} answer
 */
export function begin(answer) {
	expired = false;
	write({ token: answer.token, refreshToken: answer.refreshToken, refreshAt: refreshTime(answer), user: answer.user });
}

function refreshTime(answer) {
	return Date.now() + (answer.expiresInSeconds ?? 3600) * 1000 * 0.66;
}

/** setUser stores newer knowledge of the user. */
export function setUser(u) {
	const now = read(); // another tab may have new tokens
	if (now && now.user?.username === u.username && JSON.stringify(now.user) !== JSON.stringify(u)) write({ ...now, user: u });
}

/**
 * end removes the login from all tabs.
 * @param {boolean} [because] true when the server refused it
 */
export function end(because) {
	if (session || !because) expired = Boolean(because); // several requests may find out
	write(null);
	// The others must not keep showing the pages of a user who left.
	if (!because) localStorage.setItem(storageKey, left);
}

/** retryAfter is when a refresh that failed is tried again, in milliseconds. */
const retryAfter = 5000;

/** refresh gets new tokens. Only one tab does it, and the others take what it got. */
export function refresh() {
	refreshing ??= alone(renew).finally(() => (refreshing = null));
	return refreshing;
}

function alone(f) {
	// Browsers have locks only on pages that come over TLS or from this machine. Elsewhere the
	// server's minute for a replaced token has to do.
	return navigator.locks ? navigator.locks.request("orrery-refresh", f) : f();
}

async function renew() {
	const used = session?.token;
	session = read();
	if (!session?.refreshToken || session.token !== used) return; // logged out, or another tab was first
	const answer = await fetch("/api/v1/auth/refresh", {
		method: "POST",
		headers: { "Content-Type": "application/json" },
		body: JSON.stringify({ refreshToken: session.refreshToken }),
		signal: AbortSignal.timeout(10000), // a gateway may stand still
	}).catch(() => null);
	if (!session) return; // logged out in the meantime
	if (answer?.status === 401) return end(true);
	if (!answer?.ok) return void (session.refreshAt = Date.now() + retryAfter); // the old token may still work
	const body = await answer.json();
	if (session) write({ ...session, token: body.token, refreshToken: body.refreshToken ?? session.refreshToken, refreshAt: refreshTime(body) });
}

/** follow takes over what other tabs store. Call it once. */
export function follow() {
	addEventListener("storage", (ev) => {
		if (ev.key !== storageKey && ev.key !== null) return;
		const before = session;
		session = read();
		if (session) expired = false;
		else expired = ev.newValue !== left && (expired || before !== null);
		if (session && shown && session.user?.username !== shown) return location.reload();
		redraw();
	});
}
