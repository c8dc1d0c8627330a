/* SPDX-License-Identifier: BSD-3-Clause */
/* A scenario: its lines, one operation after the other. */
#include "language.h"
#include "out.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* One line; false when it could not be obeyed. */
static bool run_line(struct ex_world *w, const char *text, size_t len, uint64_t line)
{
	struct ex_problem p = {""};
	struct ex_line *l = ex_line_new(ex_parse(text, len, &p));
	const json_t *name = json_object_get(l->obj, "op");
	char *op = strdup(ex_is_text(name) ? json_string_value(name) : "unknown");
	ex_op_fn *run = l->obj != NULL && ex_is_text(name) ? ex_language_check(l->obj, &p) : NULL;
	const bool ok = run != NULL && run(w, l, &p);

	if (!l->kept)
		ex_line_free(l);
	if (ok)
		ex_run_poll(w);
	else
		ex_out("{ op:s line:U error:s message:s }", op, line, "BadOp",
		       p.text[0] != '\0' ? p.text : "no 'op'");
	fflush(stdout);
	free(op);
	return ok;
}

static bool blank(const char *s, size_t len)
{
	return strspn(s, " \t\r\n") >= len;
}

int ex_script(struct ex_world *w, FILE *in)
{
	char *text = NULL;
	size_t cap = 0;
	uint64_t line = 0;
	int status = 0;
	ssize_t n;

	while ((n = getline(&text, &cap, in)) >= 0) {
		line++;
		if (!blank(text, (size_t)n) && !run_line(w, text, (size_t)n, line))
			status = 1;
	}
	free(text);
	return status;
}
