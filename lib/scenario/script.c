/* SPDX-License-Identifier: BSD-3-Clause */
/* A scenario: run its lines in order. */
#include "scenario_pvt.h"

#include <stdlib.h>
#include <string.h>

/* The name of the operation, in the memory of the line. NULL: none. */
static const char *name_of(const struct kvr_sc_line *l)
{
	const json_t *name = json_object_get(l->obj, "op");

	return kvr_sc_is_text(name) ? json_string_value(name) : NULL;
}

/* Invalidates the name. */
static bool apply_line(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	kvr_sc_op_fn *run;

	if (name_of(l) == NULL)
		return kvr_sc_bad(p, "no 'op'");
	run = kvr_sc_language_check(l->obj, p);
	return run != NULL && run(w, l, p);
}

/* Run one line. @return false: it was rejected. */
static bool run_line(struct kvr_sc_world *w, const char *text, size_t len, uint64_t line)
{
	struct kvr_sc_problem p = {""};
	struct kvr_sc_line *l = kvr_sc_line_new(kvr_sc_parse(text, len, &p));
	char *op = strdup(name_of(l) != NULL ? name_of(l) : "unknown");
	const bool ok = apply_line(w, l, &p);

	if (!l->kept)
		kvr_sc_line_free(l);
	if (ok)
		w->run->poll(w);
	else
		kvr_sc_out(&w->out, "{ op:s line:U error:s message:s }", op, line, "BadOp", p.text);
	fflush(w->out.to);
	free(op);
	return ok;
}

static bool blank_line(const char *s, size_t len)
{
	return strspn(s, " \t\r\n") >= len;
}

int kvr_sc_script(struct kvr_sc_world *w, FILE *in)
{
	char *text = NULL;
	size_t cap = 0;
	uint64_t line = 0;
	int status = 0;
	ssize_t n;

	while ((n = getline(&text, &cap, in)) >= 0) {
		line++;
		if (!blank_line(text, (size_t)n) && !run_line(w, text, (size_t)n, line))
			status = 1;
	}
	free(text);
	return status;
}

void kvr_sc_pools(struct kvr_sc_world *w, FILE *in)
{
	struct kvr_sc_problem p = {""};
	char *text = NULL;
	size_t cap = 0;
	ssize_t n;

	while ((n = getline(&text, &cap, in)) >= 0) {
		struct kvr_sc_line *l = kvr_sc_line_new(kvr_sc_parse(text, (size_t)n, &p));

		if (name_of(l) != NULL && strcmp(name_of(l), "pool") == 0)
			apply_line(w, l, &p);
		kvr_sc_line_free(l);
	}
	free(text);
}
