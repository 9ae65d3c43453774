BEGIN TRANSACTION;
CREATE TABLE aside ( tbl TEXT NOT NULL, why TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE command ( id TEXT PRIMARY KEY, uid INTEGER NOT NULL, account TEXT NOT NULL, sandbox TEXT NOT NULL, generation INTEGER NOT NULL, state INTEGER NOT NULL, flags INTEGER NOT NULL, pid INTEGER NOT NULL, shell TEXT NOT NULL, args BLOB NOT NULL, user TEXT NOT NULL, cwd TEXT NOT NULL, cols INTEGER NOT NULL, rows INTEGER NOT NULL, timeout_ms INTEGER NOT NULL, kill_grace_ms INTEGER NOT NULL, spool_limit INTEGER NOT NULL, boot TEXT NOT NULL, made_at_ms INTEGER NOT NULL, started_at_ms INTEGER NOT NULL, deadline_at_ms INTEGER NOT NULL, outcome INTEGER NOT NULL, exit_code INTEGER NOT NULL, reason INTEGER NOT NULL, signal TEXT NOT NULL, message TEXT NOT NULL, survivors BLOB NOT NULL, exited_at_ms INTEGER NOT NULL) STRICT;
INSERT INTO "command" VALUES('cjq8yd64y1ql7hb9d7xm0',0,'default','i87v7wnvydxfj56yq7lgy',1,3,17,18196,'echo hello; exit 7',X'','','',0,0,0,5000,67108864,'00000000-0000-0000-0000-000000000000',1796023542506,1796023542569,0,1,7,0,'','',X'',1796023542585);
CREATE TABLE command_request ( uid INTEGER NOT NULL, method TEXT NOT NULL, request_id TEXT NOT NULL, params_hash BLOB NOT NULL, command TEXT NOT NULL, used_at_ms INTEGER NOT NULL, PRIMARY KEY (uid, method, request_id)) STRICT;
INSERT INTO "command_request" VALUES(0,'Start','s1',X'7A2A8D469F250FAC2554B0B6C6A872BF5176694841A621934D31EDEA6576EFEE','cjq8yd64y1ql7hb9d7xm0',1796023542506);
CREATE TABLE copy ( seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, account TEXT NOT NULL, uid INTEGER NOT NULL, request_id TEXT NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, policy TEXT NOT NULL, known TEXT NOT NULL, made_at_ms INTEGER NOT NULL) STRICT;
CREATE TABLE event ( number INTEGER PRIMARY KEY, seq INTEGER NOT NULL, uid INTEGER NOT NULL, at_ms INTEGER NOT NULL, type INTEGER NOT NULL, account TEXT NOT NULL, sandbox TEXT NOT NULL, name TEXT NOT NULL, reason INTEGER NOT NULL, state INTEGER NOT NULL, started_at_ms INTEGER NOT NULL, end_at_ms INTEGER NOT NULL, leases INTEGER NOT NULL, generation INTEGER NOT NULL, evidence TEXT NOT NULL) STRICT;
INSERT INTO "event" VALUES(1,1,0,1796023542354,1,'default','i87v7wnvydxfj56yq7lgy','kept',0,2,0,0,0,1,'by=create
');
INSERT INTO "event" VALUES(2,2,0,1796023542359,2,'default','i87v7wnvydxfj56yq7lgy','kept',0,2,1796023542343,1796027142343,0,1,'said_by=cloud
');
INSERT INTO "event" VALUES(3,3,0,1796023542394,1,'default','ipi8hl9wfene1b0xtbuc9','asleep',0,2,0,0,0,1,'by=create
');
INSERT INTO "event" VALUES(4,4,0,1796023542395,2,'default','ipi8hl9wfene1b0xtbuc9','asleep',0,2,1796023542380,1796027142380,0,1,'said_by=cloud
');
INSERT INTO "event" VALUES(5,5,0,1796023542418,4,'default','ipi8hl9wfene1b0xtbuc9','asleep',0,4,1796023542380,1796023542418,0,1,'by=user
');
INSERT INTO "event" VALUES(6,6,0,1796023542442,1,'default','ir6905b0ey5adi9ver8uk','over',0,2,0,0,0,1,'by=create
');
INSERT INTO "event" VALUES(7,7,0,1796023542444,2,'default','ir6905b0ey5adi9ver8uk','over',0,2,1796023542437,1796027142437,0,1,'said_by=cloud
');
INSERT INTO "event" VALUES(8,8,0,1796023542462,2,'default','ir6905b0ey5adi9ver8uk','over',0,7,1796023542437,1796027142437,0,1,'by=user
');
INSERT INTO "event" VALUES(9,9,0,1796023542481,7,'default','ir6905b0ey5adi9ver8uk','over',3,8,1796023542437,1796027142437,0,1,'said_by=DELETE /sandboxes/{id}: 204
by=user
unexpected=false
age_ms=44
');
INSERT INTO "event" VALUES(10,10,0,1796023542495,2,'default','i87v7wnvydxfj56yq7lgy','kept',0,2,1796023542343,1796027142343,1,1,'lease=taken
lease_id=ldvgsx788kvg7hkzau66h
');
CREATE TABLE intent ( seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, state INTEGER NOT NULL, account TEXT NOT NULL, uid INTEGER NOT NULL, request_id TEXT NOT NULL, req_tag TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, template_id TEXT NOT NULL, policy TEXT NOT NULL, claimed INTEGER NOT NULL, made_at_ms INTEGER NOT NULL, recipe BLOB NOT NULL DEFAULT x'', replaces TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE lease ( id TEXT PRIMARY KEY, account TEXT NOT NULL, sandbox TEXT NOT NULL, uid INTEGER NOT NULL, kind INTEGER NOT NULL, pid INTEGER NOT NULL, label TEXT NOT NULL, made_at_ms INTEGER NOT NULL, expires_at_ms INTEGER NOT NULL, identity INTEGER NOT NULL, boot_id TEXT NOT NULL, identity_value INTEGER NOT NULL) STRICT;
INSERT INTO "lease" VALUES('ldvgsx788kvg7hkzau66h','default','i87v7wnvydxfj56yq7lgy',0,3,18045,'night',1796023542495,1796109942495,0,'00000000-0000-0000-0000-000000000000',0);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT INTO "meta" VALUES('incarnation','d22356493a8e');
INSERT INTO "meta" VALUES('host_id','k5jb70ebg32mgzop');
INSERT INTO "meta" VALUES('host_seq','4096');
INSERT INTO "meta" VALUES('seq_given','3');
INSERT INTO "meta" VALUES('mark','1');
CREATE TABLE name ( uid INTEGER NOT NULL, name TEXT NOT NULL, account TEXT NOT NULL, id TEXT NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY (uid, name)) STRICT;
INSERT INTO "name" VALUES(0,'kept','default','i87v7wnvydxfj56yq7lgy',1);
INSERT INTO "name" VALUES(0,'asleep','default','ipi8hl9wfene1b0xtbuc9',1);
INSERT INTO "name" VALUES(0,'over','default','',1);
CREATE TABLE request ( uid INTEGER NOT NULL, method TEXT NOT NULL, request_id TEXT NOT NULL, params_hash BLOB NOT NULL, state INTEGER NOT NULL, account TEXT NOT NULL, object TEXT NOT NULL, req_tag TEXT NOT NULL, used_at_ms INTEGER NOT NULL, PRIMARY KEY (uid, method, request_id)) STRICT;
INSERT INTO "request" VALUES(0,'Create','r1',X'519D0633052BED1B0527A21FCB95110201D763D3A5F113B86B2F5BAEE9DE60E6',2,'default','i87v7wnvydxfj56yq7lgy','e6a6aa593cf5a8ab5ac0b5f7788e4ab3',1796023542354);
CREATE TABLE sandbox ( account TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, uid INTEGER NOT NULL, generation INTEGER NOT NULL, state INTEGER NOT NULL, ours INTEGER NOT NULL, adopted INTEGER NOT NULL, claimed INTEGER NOT NULL, unclaimed_at_ms INTEGER NOT NULL, seq INTEGER NOT NULL, req_tag TEXT NOT NULL, template_id TEXT NOT NULL, alias TEXT NOT NULL, metadata BLOB NOT NULL, started_at_ms INTEGER NOT NULL, end_at_ms INTEGER NOT NULL, cpu_count INTEGER NOT NULL, memory_mb INTEGER NOT NULL, disk_size_mb INTEGER NOT NULL, envd_version TEXT NOT NULL, domain TEXT NOT NULL, access_token TEXT NOT NULL, traffic_token TEXT NOT NULL, token_known INTEGER NOT NULL, allow_internet_access INTEGER NOT NULL, on_timeout INTEGER NOT NULL, keep_memory INTEGER NOT NULL, auto_resume INTEGER NOT NULL, policy TEXT NOT NULL, warning TEXT NOT NULL, as_of_ms INTEGER NOT NULL, gone_reason INTEGER NOT NULL, gone_at_ms INTEGER NOT NULL, gone_evidence TEXT NOT NULL, released_at_ms INTEGER NOT NULL DEFAULT 0, used_at_ms INTEGER NOT NULL DEFAULT 0, timeout_s INTEGER NOT NULL DEFAULT 0, network TEXT NOT NULL DEFAULT '', recipe BLOB NOT NULL DEFAULT x'', replaces TEXT NOT NULL DEFAULT '', PRIMARY KEY (account, id)) STRICT;
INSERT INTO "sandbox" VALUES('default','ipi8hl9wfene1b0xtbuc9','asleep',0,1,4,1,0,1,0,2,'4aed8090e1ba7c59935656aa06357a1e','rki5dems9wqfm4r03t7g','base',X'',1796023542380,1796023542418,2,512,1024,'0.6.13','','d45ba21d9b7afafea88059b3cb45d6d5313bd3a4308dc01b0f3355b301fbf189','',1,1,1,-1,0,'ka=1;or=leave;rg=30000;it=0;oi=pause;ma=0;om=kill;oc=warn;og=fail;ru=0','',1796023542418,0,0,'',0,1796023542406,3600,'',X'','');
INSERT INTO "sandbox" VALUES('default','ir6905b0ey5adi9ver8uk','over',0,1,8,1,0,1,0,3,'c949aef4506f720af2c131b49da9beaa','rki5dems9wqfm4r03t7g','base',X'',1796023542437,1796027142437,2,512,1024,'0.6.13','','','',0,1,1,-1,0,'ka=1;or=leave;rg=30000;it=0;oi=pause;ma=0;om=kill;oc=warn;og=fail;ru=0','',1796023542481,3,1796023542481,'DELETE /sandboxes/{id}: 204',0,1796023542455,3600,'',X'','');
INSERT INTO "sandbox" VALUES('default','i87v7wnvydxfj56yq7lgy','kept',0,1,2,1,0,1,0,1,'e6a6aa593cf5a8ab5ac0b5f7788e4ab3','rki5dems9wqfm4r03t7g','base',X'666F720073746F727900',1796023542343,1796027142343,2,512,1024,'0.6.13','','00522f646b6afac891b3af92f2a9785aa7cfcc9dedf850e6351bbd2cb47a4cd7','',1,1,1,-1,0,'ka=1;or=pause;rg=600000;it=0;oi=pause;ma=0;om=kill;oc=warn;og=fail;ru=0','',1796023542359,0,0,'',0,1796023542495,3600,'',X'','');
CREATE TABLE snapshot ( account TEXT NOT NULL, id TEXT NOT NULL, uid INTEGER NOT NULL, ours INTEGER NOT NULL, names TEXT NOT NULL, source TEXT NOT NULL, created_at_ms INTEGER NOT NULL, as_of_ms INTEGER NOT NULL, PRIMARY KEY (account, id)) STRICT;
CREATE UNIQUE INDEX event_of_uid ON event (uid, seq);
COMMIT;
PRAGMA user_version = 5;
PRAGMA application_id = 1097294456;
