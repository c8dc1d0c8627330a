/* SPDX-License-Identifier: BSD-3-Clause */
/* Which runtime folders go: those of dead routers, and no others. */
#include "start/folders.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvr_test.h"

static char base[] = "/tmp/kvroute-folders-XXXXXX";

/* Not called here. */
const char *rte_eal_get_runtime_dir(void);
const char *rte_eal_get_runtime_dir(void)
{
	return base;
}

static const char *in(const char *folder, const char *file)
{
	static char path[2][200];
	static int i;

	i = !i;
	snprintf(path[i], sizeof(path[i]), "%s/%s%s%s", base, folder, file[0] != '\0' ? "/" : "",
		 file);
	return path[i];
}

static void put(const char *folder, const char *file)
{
	const int fd = open(in(folder, file), O_RDWR | O_CREAT, 0600);

	CU_ASSERT_TRUE_FATAL(fd >= 0);
	close(fd);
}

static void make(const char *folder, bool ours)
{
	CU_ASSERT_EQUAL_FATAL(mkdir(in(folder, ""), 0700), 0);
	put(folder, "config");
	put(folder, "fbarray_memzone");
	if (ours)
		put(folder, FOLDERS_MARK);
}

static bool there(const char *folder)
{
	return access(in(folder, ""), F_OK) == 0;
}

/* Another process that lives in a folder: it holds the mark, or only the EAL's lock. */
static pid_t live_in(const char *folder, bool marked)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int pipes[2];
	char c;
	pid_t pid;

	CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		const int fd = open(in(folder, "config"), O_RDWR);
		const bool ok = marked ? folders_claim(in(folder, "")) >= 0
				       : fcntl(fd, F_SETLK, &lock) == 0;

		if (!ok || write(pipes[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	CU_ASSERT_EQUAL(read(pipes[0], &c, 1), 1);
	close(pipes[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void only_folders_of_dead_routers_go(void)
{
	pid_t a, b;

	make("dead", true);
	make("own", true);
	make("other", false); /* another program's, dead or not */
	make("marked", true);
	make("starting", true);
	CU_ASSERT_EQUAL(symlink("other", in("link", "")), 0);
	put(".", "file");
	a = live_in("marked", true);
	b = live_in("starting", false);
	CU_ASSERT_EQUAL(folders_claim(in("marked", "")), -EWOULDBLOCK);
	CU_ASSERT_EQUAL(folders_sweep(base, "own", 10), 1);
	CU_ASSERT(!there("dead") && there("own") && there("other") && there("link"));
	CU_ASSERT(there("marked") && there("starting") && there("file"));
	CU_ASSERT_EQUAL(access(in("marked", "fbarray_memzone"), F_OK), 0);
	end(a); /* killed: its locks go with it */
	end(b);
	CU_ASSERT_EQUAL(folders_sweep(base, "own", 1), 1); /* as many as wanted */
	CU_ASSERT_EQUAL(folders_sweep(base, "own", 10), 1);
	CU_ASSERT(!there("marked") && !there("starting") && there("other"));
	CU_ASSERT_EQUAL(folders_sweep(base, NULL, 10), 1);
	CU_ASSERT_EQUAL(folders_sweep("/nowhere/at/all", NULL, 10), 0);
	unlink(in("link", ""));
	unlink(in("file", ""));
	unlink(in("other", "config"));
	unlink(in("other", "fbarray_memzone"));
	rmdir(in("other", ""));
	CU_ASSERT_EQUAL(rmdir(base), 0); /* nothing else was left or made */
}

/* Else two routers had one folder, and the first to end took the other's socket with it. */
static void a_folder_of_a_living_router_is_not_held(void)
{
	const char *dpdk = geteuid() == 0 ? "/var/run/dpdk" : in("dpdk", "");
	char prefix[40], path[200];
	int fd;

	setenv("XDG_RUNTIME_DIR", base, 1);
	CU_ASSERT(mkdir(dpdk, 0755) == 0 || errno == EEXIST);
	snprintf(prefix, sizeof(prefix), "kvr-folders-%d", (int)getpid());
	snprintf(path, sizeof(path), "%s/%s", dpdk, prefix);
	CU_ASSERT_EQUAL(folders_hold(prefix), 0); /* there is none: the EAL will make it */
	CU_ASSERT_EQUAL_FATAL(mkdir(path, 0700), 0);
	fd = folders_claim(path);
	CU_ASSERT_TRUE_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(folders_hold(prefix), -EBUSY);
	close(fd);
	CU_ASSERT_EQUAL(folders_hold(prefix), 0);
	folders_stop();
	CU_ASSERT(access(path, F_OK) < 0);
	rmdir(in("dpdk", ""));
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"a folder of a living router is not held",
		 a_folder_of_a_living_router_is_not_held},
		{"only folders of dead routers go", only_folders_of_dead_routers_go},
		CU_TEST_INFO_NULL,
	};

	if (mkdtemp(base) == NULL)
		return 1;
	return kvr_test_run("folders", tests);
}
