/* SPDX-License-Identifier: BSD-3-Clause */
/* When snapshots are written, and by which thread. */
#include "control/log.h"
#include "control/restore.h"
#include "control/snapshot.h"
#include "state/router.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kvr_hash.h"

#define SECOND UINT64_C(1000000000)

/* ---- the thread ---- */

static void log_result(const struct snapshot *snapshot, int rc)
{
	const struct snapshot_stat *st = &snapshot->stat;

	if (rc < 0)
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .reason = strerror(-rc)),
			 "snapshot %s failed; keeping the previous one", snapshot->path);
	else if (st->written == 1)
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
			 "snapshot %s: %" PRIu64 " bytes in %" PRIu64 " ms, %" PRIu64
			 " blocks of %u workers; later snapshots are not logged",
			 snapshot->path, st->bytes, st->took_ns / 1000000, st->blocks, st->workers);
}

void snapshot_serve(struct router *rt)
{
	struct snapshot *snapshot = rt->snapshot;
	int rc;

	/* Acquire: the data written before the request is visible. */
	if (atomic_exchange_explicit(&snapshot->asked, 0, memory_order_acquire) == 0)
		return;
	rc = snapshot_write(rt);
	if (rc != snapshot->told || rc == 0)
		log_result(snapshot, rc);
	snapshot->told = rc;
	/* Release: pairs with the load in snapshot_under_way(); `stat` is complete. */
	atomic_store_explicit(&snapshot->busy, 0, memory_order_release);
}

static void *snapshot_thread(void *arg)
{
	struct router *rt = arg;
	struct snapshot *snapshot = rt->snapshot;

	for (;;) {
		while (sem_wait(&snapshot->wake) != 0)
			;
		if (atomic_load_explicit(&snapshot->quit, memory_order_relaxed) != 0)
			return NULL;
		snapshot_serve(rt);
	}
}

bool snapshot_under_way(const struct snapshot *snapshot)
{
	return atomic_load_explicit(&snapshot->busy, memory_order_acquire) != 0;
}

int snapshot_ask(struct router *rt)
{
	struct snapshot *snapshot = rt->snapshot;

	if (snapshot == NULL)
		return -ENOENT;
	/* One at a time; the store of `asked` precedes the wake-up. */
	if (atomic_exchange_explicit(&snapshot->busy, 1, memory_order_acq_rel) != 0)
		return -EALREADY;
	atomic_store_explicit(&snapshot->asked, 1, memory_order_release);
	sem_post(&snapshot->wake);
	return 0;
}

void snapshot_tick(struct router *rt)
{
	struct snapshot *snapshot = rt->snapshot;
	const uint64_t now = rt->control.now_ns;

	if (snapshot == NULL)
		return;
	if (snapshot->old != NULL && (snapshot->old->left == 0 || now >= snapshot->old->until_ns)) {
		restore_free(snapshot->old);
		snapshot->old = NULL;
	}
	if (snapshot->last_ns == 0)
		snapshot->last_ns = now;
	/* Not before the last snapshot has been claimed or has expired, because it has more than
	 * the first moments of this incarnation. */
	if (snapshot->threaded && rt->conf.opt.snapshot_s != 0 && !rt->stopping &&
	    snapshot->old == NULL && now - snapshot->last_ns >= rt->conf.opt.snapshot_s * SECOND &&
	    snapshot_ask(rt) == 0)
		snapshot->last_ns = now;
}

/* ---- the module ---- */

/* Properties of the configuration that define blocks and their hashes, for files. */
static struct kvr_snap_shape shape_of(const struct router *rt)
{
	static const uint32_t tokens[32] = {1, 2, 3, 5, 8, 13};
	const struct kvr_hash_params params = {.seed = kvr_hash_seed("a", 1, "b", 1),
					       .block_size = 16};
	struct kvr_snap_shape shape = {0};
	uint64_t sh[2];

	if (kvr_hash_tokens(&params, tokens, 32, NULL, sh, 2) == 2)
		shape.hash = sh[1];
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *pool = &rt->pool[i];

		shape.pools =
			kvr_mix64(shape.pools ^ kvr_hash_bytes(pool->name, strlen(pool->name)));
		shape.pools =
			kvr_mix64(shape.pools ^ pool->block_size ^ (uint64_t)pool->role << 32);
	}
	return shape;
}

/* @return 0; -ENOENT: no folder is configured; -EINVAL with a line in @p err. */
static int find_path(const struct router *rt, char *path, size_t len, char *err, size_t errlen)
{
	const char *folder = rt->conf.opt.state_dir, *env = getenv("STATE_DIRECTORY");
	char dir[256];
	struct stat st;

	if (folder[0] == '\0' && env != NULL)
		folder = env;
	snprintf(dir, sizeof(dir), "%.*s", (int)strcspn(folder, ":"), folder);
	if (dir[0] == '\0')
		return -ENOENT;
	if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK) != 0) {
		snprintf(err, errlen, "%s: [router] state_dir: %s is not a writable folder",
			 rt->conf.path, dir);
		return -EINVAL;
	}
	snprintf(path, len, "%s/%s.snapshot", dir, rt->conf.opt.file_prefix);
	return 0;
}

int snapshot_check(const struct router *rt, char *err, size_t errlen)
{
	char path[sizeof(rt->snapshot->path)];
	const int rc = find_path(rt, path, sizeof(path), err, errlen);

	return rc == -ENOENT ? 0 : rc;
}

static int start_thread(struct router *rt)
{
	struct snapshot *snapshot = rt->snapshot;
	sigset_t all, old;
	int rc;

	sigfillset(&all); /* signals go to the main thread */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&snapshot->thread, NULL, snapshot_thread, rt);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	snapshot->threaded = rc == 0;
	return -rc;
}

int snapshot_open(struct router *rt, char *err, size_t errlen)
{
	char path[sizeof(rt->snapshot->path)];
	int rc = find_path(rt, path, sizeof(path), err, errlen);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	rt->snapshot = calloc(1, sizeof(*rt->snapshot));
	if (rt->snapshot == NULL)
		return -ENOMEM;
	memcpy(rt->snapshot->path, path, sizeof(path));
	rt->snapshot->shape = shape_of(rt);
	sem_init(&rt->snapshot->wake, 0, 0);
	restore_read(rt, path,
		     &rt->snapshot->shape); /* without it the router starts with empty tables */
	return 0;
}

int start_snapshots(struct router *rt, char *err, size_t errlen)
{
	RTE_SET_USED(err);
	RTE_SET_USED(errlen);
	return rt->snapshot != NULL ? start_thread(rt) : 0;
}

void stop_snapshots(struct router *rt)
{
	struct snapshot *snapshot = rt->snapshot;

	if (snapshot == NULL || !snapshot->threaded)
		return;
	atomic_store_explicit(&snapshot->quit, 1, memory_order_relaxed);
	sem_post(&snapshot->wake);
	pthread_join(snapshot->thread, NULL);
	snapshot->threaded = false;
}

void snapshot_close(struct router *rt)
{
	struct snapshot *snapshot = rt->snapshot;

	if (snapshot == NULL)
		return;
	sem_destroy(&snapshot->wake);
	restore_free(snapshot->old);
	free(snapshot);
	rt->snapshot = NULL;
}
