/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_H
#define CTL_H

/**
 * @file
 * kvroute-ctl: one row of ctl_commands[] per command. Help, argument check, completion and the
 * manual page come from the table. A row with a path sends that telemetry command and prints the
 * answer with table.h; a row with a function calls it. One thread.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "telemetry.h"

struct ctl_options {
	char router[64]; /* file prefix; "" = the only router */
	char listen[128];
	double seconds;	 /* 0 = default of the command */
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
	const char *args;    /* "WORKER", "POOL [NUMBER]"; "" = none. Capitals name the kind */
	const char *help;    /* one line */
	const char *path;    /* of the telemetry command, or NULL */
	const char *pages;   /* member that comes in pages, or NULL */
	const char *columns; /* of the table, or NULL: all */
	enum ctl_status (*run)(struct ctl *c, int argc, char **argv);
};

extern const struct ctl_command ctl_commands[]; /* ends with name NULL */

/** @return the row of command @p name, or NULL. */
const struct ctl_command *ctl_find(const char *name);

/** Count the words of @p c->args: those required, and all. */
void ctl_count_args(const struct ctl_command *c, int *least, int *most);

/** Run a row with a path: send its command and print the answer. */
enum ctl_status ctl_run_query(struct ctl *c, const struct ctl_command *row, int argc, char **argv);

/** Commands; @p argv without the command's name. */
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

/** Connect unless connected. Prints the error, if any. */
enum ctl_status ctl_open(struct ctl *c);

/**
 * Send one command; print an error, if any. @p pages as in tel_ask_pages().
 * @return the answer; or NULL, with *status.
 */
json_t *ctl_query(struct ctl *c, const char *command, const char *pages, enum ctl_status *status);

/** Print an answer as text, or as JSON with --json. */
void ctl_print(const struct ctl *c, const json_t *v, const char *columns);

/** Print `kvroute-ctl: ...` to standard error. @return @p s. */
enum ctl_status ctl_report(enum ctl_status s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** Let SIGINT and SIGTERM end ctl_wait(). */
void ctl_catch_signals(void);

/** Wait. @return false after a signal or the key q. */
bool ctl_wait(double seconds);

/** Print one screen from two samples (sample.h). Pure. */
void top_print(const json_t *was, const json_t *is, FILE *out);

/** Print the completion script of a shell, "bash" or "zsh". @return 0, or -EINVAL. */
int print_completion(const char *shell, FILE *out);

/** Print the words that may follow a command, one per line, for the completion script. */
enum ctl_status ctl_words(struct ctl *c, int argc, char **argv);

#endif
