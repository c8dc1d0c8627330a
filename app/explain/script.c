/* SPDX-License-Identifier: BSD-3-Clause */
/* A scenario: its lines, one operation after the other. */
#include "out.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	ex_op_fn *run;
} ops[] = {
	{"pool", ex_op_pool},
	{"worker", ex_op_worker},
	{"worker_gone", ex_op_worker_gone},
	{"drain", ex_op_drain},
	{"resume", ex_op_resume},
	{"store", ex_op_store},
	{"remove", ex_op_remove},
	{"clear", ex_op_clear},
	{"route", ex_op_route},
	{"prefill_done", ex_op_prefill_done},
	{"output", ex_op_output},
	{"finish", ex_op_finish},
	{"cancel", ex_op_cancel},
	{"fail", ex_op_fail},
	{"load", ex_op_load},
	{"session_ack", ex_op_session_ack},
	{"advance", ex_op_advance},
	{"loads", ex_op_loads},
	{"scores", ex_op_scores},
	{"hash", ex_op_hash},
};

static void refused(const char *op, uint64_t line, const struct ex_problem *p)
{
	ex_out_line(op);
	ex_out_u64("line", line);
	ex_out_str("error", "BadOp");
	ex_out_str("message", p->text);
	ex_out_end();
}

static bool run_op(struct ex_world *w, const char *op, const json_t *obj, struct ex_problem *p)
{
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (strcmp(ops[i].name, op) == 0)
			return ops[i].run(w, obj, p);
	return ex_bad(p, "unknown op");
}

/* One line; false when it could not be obeyed. */
static bool run_line(struct ex_world *w, const char *text, size_t len, uint64_t line)
{
	struct ex_problem p = {""};
	json_t *obj = ex_parse(text, len, &p);
	const json_t *name = json_object_get(obj, "op");
	const char *op =
		json_is_string(name) && !ex_is_number(name) ? json_string_value(name) : "unknown";
	bool ok = obj != NULL;

	if (ok && strcmp(op, "unknown") == 0)
		ok = ex_bad(&p, "no 'op'");
	if (ok)
		ok = run_op(w, op, obj, &p);
	if (ok)
		ex_run_poll(w);
	else
		refused(op, line, &p);
	fflush(stdout);
	json_decref(obj);
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

	w->ids = json_object();
	if (w->ids == NULL)
		return 2;
	while ((n = getline(&text, &cap, in)) >= 0) {
		line++;
		if (!blank(text, (size_t)n) && !run_line(w, text, (size_t)n, line))
			status = 1;
	}
	free(text);
	return status;
}
