/* SPDX-License-Identifier: BSD-3-Clause */
/* Parser of the Prometheus text format, for the metrics in the table of kinds. */
#include "prom.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct span {
	const char *p, *end;
};

static bool equals_text(struct span s, const char *text)
{
	const size_t n = strlen(text);

	return (size_t)(s.end - s.p) == n && memcmp(s.p, text, n) == 0;
}

/* Read the next name="value" of the labels. */
static bool next_label(struct span *in, struct span *name, struct span *value)
{
	while (in->p < in->end && (*in->p == ',' || *in->p == ' '))
		in->p++;
	name->p = in->p;
	name->end = memchr(in->p, '=', (size_t)(in->end - in->p));
	if (name->end == NULL || in->end - name->end < 2 || name->end[1] != '"')
		return false;
	value->p = name->end + 2;
	for (value->end = value->p; value->end < in->end && *value->end != '"'; value->end++)
		if (*value->end == '\\' && value->end + 1 < in->end)
			value->end++;
	if (value->end >= in->end)
		return false;
	in->p = value->end + 1;
	return true;
}

static uint64_t parse_number(struct span s)
{
	uint64_t n = 0;

	if (s.end - s.p > 18)
		return 0;
	for (; s.p < s.end; s.p++) {
		if (*s.p < '0' || *s.p > '9')
			return 0;
		n = n * 10 + (uint64_t)(*s.p - '0');
	}
	return n;
}

/* Find label @p want. @return false: there is none. */
static bool get_label(struct span labels, const char *want, struct span *value)
{
	struct span name;

	while (next_label(&labels, &name, value))
		if (equals_text(name, want))
			return true;
	return false;
}

/* Value of a sample that is an integer. */
static uint64_t whole_number(double v)
{
	return v >= 1 && v <= UINT32_MAX && v == floor(v) ? (uint64_t)v : 0;
}

static void keep_first(struct agent_prom *out, unsigned int row, uint64_t *at, uint64_t n)
{
	const enum agent_value value = agent_rows[row].value;

	if (n == 0 || out->row[value] != 0)
		return;
	*at = n;
	out->row[value] = (uint16_t)(row + 1);
}

static void read_load(struct agent_prom *out, enum agent_value value, struct span labels, double v)
{
	struct agent_prom_rank *r;
	struct span at;
	uint64_t rank = 0;

	if (get_label(labels, "engine", &at) || get_label(labels, "dp_rank", &at) ||
	    get_label(labels, "engine_idx", &at))
		rank = parse_number(at);
	if (rank >= AGENT_PROM_RANKS || !isfinite(v) || v < 0)
		return;
	r = &out->rank[rank];
	r->seen = true;
	if (value == AGENT_V_WAITING)
		r->waiting = v;
	else if (value == AGENT_V_RUNNING)
		r->running = v;
	else
		r->kv_use = v < 1 ? v : 1;
}

static void read_sample(struct agent_prom *out, unsigned int row, struct span labels, double v)
{
	const struct agent_row *r = &agent_rows[row];
	uint64_t *const at = r->value == AGENT_V_BLOCKS ? &out->blocks : &out->block_size;
	struct span text;

	if (r->form == AGENT_FORM_SAMPLES) {
		out->engines += get_label(labels, r->inside, &text);
		out->row[r->value] = out->engines != 0 ? (uint16_t)(row + 1) : 0;
	} else if (r->form == AGENT_FORM_GAUGE && r->value >= AGENT_V_WAITING) {
		read_load(out, r->value, labels, v);
	} else if (r->form == AGENT_FORM_GAUGE) {
		keep_first(out, row, at, whole_number(v));
	} else if (get_label(labels, r->inside, &text)) {
		keep_first(out, row, at, parse_number(text));
	}
}

static void parse_line(struct agent_prom *out, struct span s)
{
	struct span name = {s.p, s.p}, labels = {s.end, s.end};
	bool known = false;
	char text[64];
	size_t n;

	while (name.end < s.end && *name.end != '{' && *name.end != ' ')
		name.end++;
	s.p = name.end;
	if (s.p < s.end && *s.p == '{') {
		labels.p = s.p + 1;
		for (s.p++; s.p < s.end && *s.p != '}'; s.p++)
			if (*s.p == '"') /* a brace inside a value is skipped */
				while (++s.p < s.end && *s.p != '"')
					s.p += *s.p == '\\';
		if (s.p >= s.end)
			return;
		labels.end = s.p++;
	}
	n = (size_t)(s.end - s.p) < sizeof(text) - 1 ? (size_t)(s.end - s.p) : sizeof(text) - 1;
	memcpy(text, s.p, n);
	text[n] = 0;
	for (unsigned int i = 0; agent_rows[i].where != NULL; i++) {
		const struct agent_row *r = &agent_rows[i];

		if (r->page != AGENT_PAGE_METRICS || !equals_text(name, r->where))
			continue;
		out->kind = r->kind;
		known = true;
		read_sample(out, i, labels, strtod(text, NULL));
	}
	out->samples += known;
}

/* Divide a sum over all engines of the page among them. */
static void share_blocks(struct agent_prom *out)
{
	const uint16_t row = out->row[AGENT_V_BLOCKS];

	if (row != 0 && agent_rows[row - 1].form == AGENT_FORM_SHARE && out->engines > 1)
		out->blocks /= out->engines;
}

void agent_prom_read(struct agent_prom *out, const char *page, size_t len)
{
	const char *p = page, *end = page + len;

	*out = (struct agent_prom){.kind = AGENT_AUTO};
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const struct span s = {p, nl != NULL ? nl : end};

		if (s.p < s.end && *s.p != '#')
			parse_line(out, s);
		p = s.end + 1;
	}
	share_blocks(out);
}
