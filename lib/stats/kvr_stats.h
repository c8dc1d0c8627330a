/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_STATS_H
#define KVR_STATS_H

/**
 * @file
 * Counters declared as a table beside the code that counts: name, unit, help, and the equations
 * they obey. One row of counters per writing lcore, cache-aligned, so that no line is shared;
 * readers sum the rows. Adding costs a load, an add and a store (a row has one writer, so no
 * locked instruction is needed).
 *
 * A library declares one list, of which enum and rows are made:
 *
 *	#define X_COUNTER_LIST(X) \
 *		X(X_RX, rx, COUNT, "frames", "frames received") \
 *		X(X_GOOD, good, COUNT, "frames", "frames kept") \
 *		X(X_WAITING, waiting, GAUGE, "frames", "frames not judged yet")
 *	enum x_counter { X_COUNTER_LIST(KVR_COUNTER_ENUM) X_N };
 *
 *	static const struct kvr_counter x_rows[] = {
 *		X_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END,
 *	};
 *	static const struct kvr_equation x_equations[] = {
 *		{KVR_TERMS(X_RX), KVR_TERMS(X_GOOD, X_WAITING)},
 *		{0},
 *	};
 *	const struct kvr_stats_def x_stats = {"x", x_rows, x_equations};
 *
 * creates with kvr_stats_create(), gives each lcore kvr_stats_row(), and the lcore calls
 * kvr_stats_add(row, X_RX, n). A library whose object counts by itself keeps a struct of the same
 * list, which is a row:
 *
 *	struct x_stats { X_COUNTER_LIST(KVR_COUNTER_FIELD) };
 *
 * counts with kvr_cell_add(&obj->st.rx, n), and hands out copies (kvr_stats_row_copy()).
 *
 * An equation holds for each row whenever its writer is between two bursts. A reader that sums
 * while they run may see it violated by the items in flight; check it when they are quiet, or
 * rows that their owners have copied.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** The value only grows. */
#define KVR_COUNTER_F_COUNT 0x0u
/** The value goes up and down (kvr_stats_sub, kvr_stats_set); exported as a gauge. */
#define KVR_COUNTER_F_GAUGE 0x1u

/* What a list of X(id, name, COUNT or GAUGE, "unit", "help") makes: enumerators, rows of a table
 * of struct kvr_counter, fields of a struct. */
#define KVR_COUNTER_ENUM(id, name, kind, unit, help) id,
#define KVR_COUNTER_ROW(id, name, kind, unit, help)                                                \
	[id] = {#name, unit, help, KVR_COUNTER_F_##kind},
#define KVR_COUNTER_END                                                                            \
	{                                                                                          \
		NULL, NULL, NULL, 0                                                                \
	}
#define KVR_COUNTER_FIELD(id, name, kind, unit, help) kvr_cell_t name;

/** One counter; a table ends with name NULL. */
struct kvr_counter {
	const char *name; /* [a-z0-9_]+, unique in its table */
	const char *unit; /* plural noun: "frames", "bytes", "cycles" */
	const char *help; /* one line, no full stop */
	uint32_t flags;	  /* KVR_COUNTER_F_* */
};

#define KVR_STATS_MAX  256u /* counters in a table: a telemetry dictionary holds no more */
#define KVR_TERMS_END  UINT16_MAX
#define KVR_TERMS(...) ((const uint16_t[]){__VA_ARGS__, KVR_TERMS_END})

/** Sum of the counters `left` == sum of the counters `right`; a table ends with NULL. What it says
 * is made of the counters' names: kvr_equation_text(). */
struct kvr_equation {
	const uint16_t *left, *right; /* indexes, KVR_TERMS() */
};

/** What a library counts. */
struct kvr_stats_def {
	const char *lib; /* second word of the metric names */
	const struct kvr_counter *counters;
	const struct kvr_equation *equations; /* or NULL */
};

/** One cell; the row's owner rw, others ro. */
typedef _Atomic uint64_t kvr_cell_t;

struct kvr_stats;

/** Number of counters in @p def's table. */
unsigned int kvr_stats_count(const struct kvr_stats_def *def);

/**
 * Zeroed counters with one row for each of @p n_writers (at least 1).
 * @return the object, to be destroyed by the caller; NULL with EINVAL (bad table) or ENOMEM.
 */
struct kvr_stats *kvr_stats_create(const struct kvr_stats_def *def, unsigned int n_writers);

/** NULL is accepted. No writer may be running. */
void kvr_stats_destroy(struct kvr_stats *s);

/** What @p s counts. */
const struct kvr_stats_def *kvr_stats_def(const struct kvr_stats *s);

/** The row of one writer, 0 .. n_writers - 1. */
kvr_cell_t *kvr_stats_row(struct kvr_stats *s, unsigned int writer);

/** Sum all rows into @p out (kvr_stats_count() values). Any thread. */
void kvr_stats_sum(const struct kvr_stats *s, uint64_t out[]);

/** Copy one writer's row into @p out (kvr_stats_count() values): consistent when the owner calls.
 */
void kvr_stats_row_get(const struct kvr_stats *s, unsigned int writer, uint64_t out[]);

/** Add @p n to counter @p i of a row. Only the row's owner. */
static inline void kvr_stats_add(kvr_cell_t *row, unsigned int i, uint64_t n)
{
	/* Relaxed: the counter publishes nothing, readers only need an untorn value. */
	uint64_t v = atomic_load_explicit(&row[i], memory_order_relaxed);

	atomic_store_explicit(&row[i], v + n, memory_order_relaxed);
}

static inline void kvr_stats_inc(kvr_cell_t *row, unsigned int i)
{
	kvr_stats_add(row, i, 1);
}

/** Take @p n from a gauge. The sum over rows is right even when one row falls below zero. */
static inline void kvr_stats_sub(kvr_cell_t *row, unsigned int i, uint64_t n)
{
	kvr_stats_add(row, i, 0 - n);
}

/** Set a gauge of a row. Only the row's owner. */
static inline void kvr_stats_set(kvr_cell_t *row, unsigned int i, uint64_t v)
{
	atomic_store_explicit(&row[i], v, memory_order_relaxed); /* publishes nothing */
}

/** Value of one counter of one row. Any thread. */
static inline uint64_t kvr_stats_get(const kvr_cell_t *row, unsigned int i)
{
	return atomic_load_explicit(&row[i], memory_order_relaxed);
}

/** Add @p n to one counter, wherever it lies. Only its writer. */
static inline void kvr_cell_add(kvr_cell_t *cell, uint64_t n)
{
	kvr_stats_add(cell, 0, n);
}

/** Take @p n from a gauge. Only its writer. */
static inline void kvr_cell_sub(kvr_cell_t *cell, uint64_t n)
{
	kvr_stats_add(cell, 0, 0 - n);
}

/** Set a gauge. Only its writer. */
static inline void kvr_cell_set(kvr_cell_t *cell, uint64_t v)
{
	kvr_stats_set(cell, 0, v);
}

/** Value of one counter. Any thread. */
static inline uint64_t kvr_cell_get(const kvr_cell_t *cell)
{
	return kvr_stats_get(cell, 0);
}

/** Copy @p n cells of a row to another one. Any thread that alone writes @p to. */
static inline void kvr_stats_row_copy(kvr_cell_t *to, const kvr_cell_t *from, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		kvr_stats_set(to, i, kvr_stats_get(from, i));
}

/** What an equation says, "rx = good + waiting", into @p buf, cut at @p len bytes. @return buf. */
char *kvr_equation_text(const struct kvr_stats_def *def, const struct kvr_equation *e, char *buf,
			size_t len);

/**
 * Check @p def's equations against a snapshot.
 * @return NULL when all hold, else the first violated one; @p err (may be NULL) then says it
 * with its numbers: "port: rx = good + bad, but 5 != 4".
 */
const struct kvr_equation *kvr_stats_check(const struct kvr_stats_def *def, const uint64_t v[],
					   char *err, size_t errlen);

/** Value of the counter called @p name in a snapshot, 0 when there is none. For tests, tools. */
uint64_t kvr_stats_find(const struct kvr_stats_def *def, const uint64_t v[], const char *name);

/**
 * Write OpenMetrics families, one sample each: kvr_<lib>_<name>_<unit> (the
 * unit not twice when the name ends in it), "_total" for counters.
 * @p labels is NULL or ready text such as `port="p0"`. With several instances of one library
 * the families must not repeat: give all instances in one call (@p n snapshots, label texts).
 */
void kvr_stats_openmetrics(const struct kvr_stats_def *def, const uint64_t *const v[],
			   const char *const labels[], unsigned int n, FILE *out);

struct rte_tel_data;

/**
 * Add every counter to a started telemetry dictionary as `name: value`. Links with
 * librte_telemetry.
 * @return 0 or the first negative error of rte_tel_data_add_dict_u64().
 */
int kvr_stats_tel(const struct kvr_stats_def *def, const uint64_t v[], struct rte_tel_data *d);

#endif
