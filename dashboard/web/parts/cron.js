// When a cron expression is due, by the rules of the server: five fields, and one time zone.

const names = {
	month: ["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
	day: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};
const bounds = /** @type {[number, number, string[]][]} */ ([[0, 59, []], [0, 23, []], [1, 31, []], [1, 12, names.month], [0, 6, names.day]]);
const hour = 3600e3;
/** margin is how far from a time the offsets before and after a change of clocks are looked up. */
const margin = 26 * hour;

/** field returns the values of one field, and whether it is open to every value. */
function field(text, [min, max, words]) {
	const values = new Set();
	let every = false;
	for (const part of text.toLowerCase().split(",")) {
		const [range, stepText] = part.split("/"), step = stepText === undefined ? 1 : Number(stepText);
		if (!(Number.isInteger(step) && step > 0) || part.split("/").length > 2) return null;
		const value = (s) => (words.includes(s) && s !== "" ? words.indexOf(s) : /^\d+$/.test(s) ? Number(s) : NaN);
		let from, to;
		if (range === "*" || range === "?") {
			[from, to] = [min, max];
			if (step === 1) every = true;
		} else {
			const ends = range.split("-");
			if (ends.length > 2) return null;
			from = value(ends[0]);
			to = ends.length === 2 ? value(ends[1]) : stepText === undefined ? from : max;
		}
		if (!(from >= min && to <= max && from <= to)) return null;
		for (let v = from; v <= to; v += step) values.add(v);
	}
	return { values, every };
}

/** offset returns how far the clocks of a zone are ahead of UTC at a time, in milliseconds. */
function offset(at, format) {
	const p = Object.fromEntries(format.formatToParts(at).map((x) => [x.type, Number(x.value)]));
	return Date.UTC(p.year, p.month - 1, p.day, p.hour, p.minute, p.second) - Math.floor(at / 1000) * 1000;
}

/**
 * dueTimes returns when an expression is due from one time until another, in milliseconds. It returns
 * null for an expression or a zone that it cannot read.
 * @param {string} expression
 * @param {string} zone
 * @param {number} from
 * @param {number} until
 * @param {number} [most]
 * @returns {number[] | null}
 */
export function dueTimes(expression, zone, from, until, most = 2000) {
	const parts = expression.trim().split(/\s+/);
	if (parts.length !== 5) return null;
	const fields = parts.map((p, i) => field(p, bounds[i]));
	const [minutes, hours, days, months, weekdays] = fields;
	if (!minutes || !hours || !days || !months || !weekdays) return null;
	let format;
	try {
		format = new Intl.DateTimeFormat("en-US", { timeZone: zone || "UTC", hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" });
	} catch {
		return null;
	}
	const first = offset(from - margin, format), last = offset(until + margin, format), often = parts[1].startsWith("*");
	// A clock time is due once, except that it may not exist, or exist twice.
	const moments = (wall) => {
		if (first === last) return [wall - first];
		const a = wall - offset(wall - margin, format), b = wall - offset(wall + margin, format);
		const isA = a + offset(a, format) === wall, isB = b + offset(b, format) === wall;
		if (isA) return a !== b && isB && often ? [a, b] : [a];
		if (isB) return [b];
		if (often) return [];
		// The clocks jump over it: it is due when they have jumped.
		let low = Math.min(a, b) - 3 * hour, high = Math.max(a, b) + 3 * hour;
		const before = offset(low, format);
		while (high - low > 1000) {
			const middle = Math.floor((low + high) / 2000) * 1000;
			if (offset(middle, format) === before) low = middle;
			else high = middle;
		}
		return [high];
	};
	const due = new Set();
	const startDay = Math.floor((from + Math.min(first, last)) / 86400e3) - 1, endDay = Math.floor((until + Math.max(first, last)) / 86400e3) + 1;
	for (let d = startDay; d <= endDay && due.size < most; d++) {
		const date = new Date(d * 86400e3);
		const inDays = days.values.has(date.getUTCDate()), inWeek = weekdays.values.has(date.getUTCDay());
		if (!months.values.has(date.getUTCMonth() + 1) || !(days.every || weekdays.every ? inDays && inWeek : inDays || inWeek)) continue;
		for (const h of hours.values) for (const m of minutes.values) for (const at of moments(d * 86400e3 + h * hour + m * 60e3)) if (at >= from && at < until) due.add(at);
	}
	return [...due].sort((a, b) => a - b).slice(0, most);
}
