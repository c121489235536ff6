// Requests to the gateway. Every failure is a Failure with the gateway's own words.
import * as session from "./session.js";

/** Failure is a refused or failed request. status 0 means that no answer came. */
export class Failure extends Error {
	constructor(status, code, message, retryAfter) {
		super(message);
		this.status = status;
		this.code = code;
		this.retryAfter = retryAfter;
	}
}

/** ahead is how far the server's clock is ahead of this one, in milliseconds. */
let ahead = 0;

/** now returns the server's time in milliseconds, so that ages are right on a machine with a wrong clock. */
export function now() {
	return Date.now() + ahead;
}

/** skew returns how far the server's clock is ahead of this machine's, in milliseconds. */
export function skew() {
	return ahead;
}

/**
 * @typedef {{query?: Record<string, any>, body?: any, type?: string, form?: FormData, ifMatch?: string, create?: boolean, raw?: boolean, keepLogin?: boolean, signal?: AbortSignal, dryRun?: boolean}} Options
 * type is the media type of a body that is sent as it is. create refuses to replace what exists.
 * With keepLogin, 401 is about the body, such as a wrong password, and does not end the login.
 */

/**
 * request sends a request and returns its answer. With raw it returns the Response.
 * @param {string} method
 * @param {string} path
 * @param {Options} [o]
 * @returns {Promise<any>}
 */
export async function request(method, path, o = {}) {
	let answer = await send(method, path, o);
	if (answer.status === 401 && session.current() && !o.keepLogin) {
		const used = session.current()?.token;
		await session.refresh();
		if (session.current() && session.current()?.token !== used) answer = await send(method, path, o);
		if (answer.status === 401) session.end(true);
	}
	if (!answer.ok) throw await failure(answer);
	if (o.raw) return answer;
	if (answer.status === 204) return null;
	const type = answer.headers.get("Content-Type") ?? "";
	const body = type.includes("json") ? await answer.json() : await answer.text();
	const etag = answer.headers.get("ETag");
	if (etag && body && typeof body === "object" && !Array.isArray(body)) Object.defineProperty(body, "$etag", { value: etag, configurable: true });
	return body;
}

async function send(method, path, o) {
	const s = session.current();
	if (s && Date.now() > s.refreshAt) await session.refresh();
	const headers = new Headers({ Accept: "application/json" });
	const token = session.current()?.token;
	if (token) headers.set("Authorization", "Bearer " + token);
	if (o.ifMatch) headers.set("If-Match", o.ifMatch);
	if (o.create) headers.set("If-None-Match", "*");
	if (o.body !== undefined) headers.set("Content-Type", o.type ?? "application/json");
	const q = new URLSearchParams();
	for (const [k, v] of Object.entries(o.query ?? {})) if (v !== undefined && v !== null && v !== "") q.set(k, String(v));
	if (o.dryRun) q.set("dryRun", "true");
	const url = path + (q.size ? "?" + q : "");
	const sent = Date.now();
	let answer;
	try {
		answer = await fetch(url, { method, headers, body: o.form ?? (o.body === undefined || o.type ? o.body : JSON.stringify(o.body)), signal: o.signal, cache: "no-cache" });
	} catch (err) {
		if (o.signal?.aborted) throw err;
		throw new Failure(0, "OFFLINE", "");
	}
	const date = Date.parse(answer.headers.get("Date") ?? "");
	// The header has whole seconds: only a clock that is clearly wrong is corrected. A slow answer
	// does not tell at which moment it was dated.
	if (date && Date.now() - sent < 5000) {
		const off = date + 500 - (sent + Date.now()) / 2;
		ahead = Math.abs(off) > 3000 ? off : 0;
	}
	return answer;
}

async function failure(answer) {
	let code = "", message = answer.statusText;
	try {
		const e = (await answer.json()).error;
		code = e.code ?? "";
		message = e.message ?? e;
	} catch {
		// Not the gateway's envelope: a proxy answered.
	}
	return new Failure(answer.status, code, message, Number(answer.headers.get("Retry-After")) || 0);
}

export const get = (path, query, o) => request("GET", path, { ...o, query });
export const post = (path, body, o) => request("POST", path, { ...o, body: body ?? {} });
export const put = (path, body, o) => request("PUT", path, { ...o, body });
export const putText = (path, text, type, o) => request("PUT", path, { ...o, body: text, type });
export const patch = (path, body, o) => request("PATCH", path, { ...o, body });
export const del = (path, o) => request("DELETE", path, o);

/**
 * all reads every page of a list.
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {(list: any[]) => void} [each] called with each page
 */
export async function all(path, query, each) {
	let list = [], total = 0, again = 3;
	for (let page = 1; ; page++) {
		const answer = await get(path, { ...query, page, pageSize: 1000 });
		if (page > 1 && answer.total !== total && !each && again-- > 0) {
			// Rows moved between the pages. One of them may be missing.
			list = [];
			page = 0;
			continue;
		}
		total = answer.total;
		list.push(...answer.data);
		if (each) each(answer.data);
		if (answer.data.length === 0 || list.length >= answer.total) return list;
	}
}

/**
 * url builds a path from parts.
 * @param {TemplateStringsArray} strings
 * @param {...string} values
 */
export function url(strings, ...values) {
	return strings.reduce((s, part, i) => s + part + (i < values.length ? encodeURIComponent(values[i]) : ""), "");
}
