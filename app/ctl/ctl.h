/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_H
#define CTL_H

/**
 * @file
 * kvroute-ctl: one row of commands[] for each sub-command. Help, arity, completion and the manual
 * page come from the table; a row with a path is asked as it is and shown by table.h, a row with a
 * function does what it likes. One thread.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tel.h"

struct ctl_options {
	char router[64]; /* "" = the only one */
	char listen[128];
	double seconds;	 /* 0 = what the command takes by itself */
	double patience; /* s; of doctor */
	uint32_t count;
	bool json;
};

struct ctl {
	struct ctl_options opt;
	struct tel_places places;
	struct tel t;
};

struct ctl_command {
	const char *name;
	const char *args;    /* "WORKER", "POOL [NUMBER]"; "" = none. Capitals name what they are */
	const char *help;    /* one line */
	const char *path;    /* of the telemetry command, or NULL */
	const char *pages;   /* member that comes in parts, or NULL */
	const char *columns; /* of the table, or NULL: all */
	enum ctl_status (*run)(struct ctl *c, int argc, char **argv);
};

extern const struct ctl_command ctl_commands[]; /* ends with name NULL */

/** The row called @p name, or NULL. */
const struct ctl_command *ctl_find(const char *name);

/** Words of @p c->args: those that must be given, and all. */
void ctl_arity(const struct ctl_command *c, int *least, int *most);

/** Run a row with a path: ask, and print. */
enum ctl_status ctl_ask(struct ctl *c, const struct ctl_command *row, int argc, char **argv);

/** Commands by themselves; @p argv without the command's name. */
enum ctl_status ctl_doctor(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_top(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_explain(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_why(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_watch(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_exporter(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_routers(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_raw(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_metrics(struct ctl *c, int argc, char **argv);
enum ctl_status ctl_completion(struct ctl *c, int argc, char **argv);

/* ---- shared ---- */

/** Connect, unless it is so already. On failure the line is printed. */
enum ctl_status ctl_open(struct ctl *c);

/**
 * Ask one command and tell what goes wrong; @p pages as in tel_ask_all().
 * @return the answer, or NULL: *status says why.
 */
json_t *ctl_get(struct ctl *c, const char *command, const char *pages, enum ctl_status *status);

/** Print an answer as the options want it. */
void ctl_print(const struct ctl *c, const json_t *v, const char *columns);

/** Print `kvroute-ctl: ...` to standard error. @return @p s. */
enum ctl_status ctl_say(enum ctl_status s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** SIGINT and SIGTERM end what waits. */
void ctl_signals(void);

/** Wait; @return false when a signal asks for the end. */
bool ctl_wait(double seconds);

/** A picture of a router between two looks (snap.h). Pure. */
void top_print(const json_t *was, const json_t *is, FILE *out);

/** Completion script of a shell, "bash" or "zsh". @return 0, or -EINVAL. */
int completion_print(const char *shell, FILE *out);

/** Completes when @p shell script asks: words that may follow @p command, one a line. */
enum ctl_status ctl_words(struct ctl *c, int argc, char **argv);

#endif
