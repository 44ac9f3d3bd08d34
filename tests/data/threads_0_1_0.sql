BEGIN TRANSACTION;
CREATE TABLE assent_alembic_version (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT assent_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "assent_alembic_version" VALUES('0001');
CREATE TABLE assent_effects (
    thread_id VARCHAR(255) NOT NULL, 
    tool_call_id VARCHAR(255) NOT NULL, 
    tool_name VARCHAR(255) NOT NULL, 
    digest VARCHAR(64) NOT NULL, 
    effect VARCHAR(16) NOT NULL, 
    attempt INTEGER NOT NULL, 
    started_at BIGINT NOT NULL, 
    ended_at BIGINT, 
    PRIMARY KEY (thread_id, tool_call_id)
)
 WITHOUT ROWID;
INSERT INTO "assent_effects" VALUES('in-doubt','call-1','pay','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','once',1,1700000000000,NULL);
CREATE TABLE assent_messages (
    thread_id VARCHAR(255) NOT NULL, 
    seq BIGINT NOT NULL, 
    run_id VARCHAR(255) NOT NULL, 
    role VARCHAR(16) NOT NULL, 
    body TEXT NOT NULL, 
    PRIMARY KEY (thread_id, seq)
);
INSERT INTO "assent_messages" VALUES('finished',0,'89e19db14d87c8e7f8087c2d4c6c4313','user','{"role":"user","content":[{"type":"text","text":"hello"}]}');
INSERT INTO "assent_messages" VALUES('finished',1,'89e19db14d87c8e7f8087c2d4c6c4313','assistant','{"role":"assistant","content":[{"type":"text","text":"hello, person"}],"stop_reason":"end","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('paused',0,'9c6e98eada7cc87a138b50b3703565b3','user','{"role":"user","content":[{"type":"text","text":"pay"}]}');
INSERT INTO "assent_messages" VALUES('paused',1,'9c6e98eada7cc87a138b50b3703565b3','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"pay","args":{"amount":5}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('paused-unknown-tool',0,'72b054286e0a10a319fb8424c329f56c','user','{"role":"user","content":[{"type":"text","text":"fax"}]}');
INSERT INTO "assent_messages" VALUES('paused-unknown-tool',1,'72b054286e0a10a319fb8424c329f56c','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"fax","args":{"text":"hi"}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('paused-parallel',0,'804e4e9befb4244d8611bc6719c24fe2','user','{"role":"user","content":[{"type":"text","text":"pay twice"}]}');
INSERT INTO "assent_messages" VALUES('paused-parallel',1,'804e4e9befb4244d8611bc6719c24fe2','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"pay","args":{"amount":5}},{"type":"tool_call","id":"call-2","name":"pay","args":{"amount":5}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('answered',0,'60480a311d71b869d58f53296449b935','user','{"role":"user","content":[{"type":"text","text":"pay"}]}');
INSERT INTO "assent_messages" VALUES('answered',1,'60480a311d71b869d58f53296449b935','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"pay","args":{"amount":5}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('edited',0,'fec9b2e9e72360208d6dd39ccbf43b52','user','{"role":"user","content":[{"type":"text","text":"pay"}]}');
INSERT INTO "assent_messages" VALUES('edited',1,'fec9b2e9e72360208d6dd39ccbf43b52','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"pay","args":{"amount":5}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('denied',0,'f22155aec042496c7538f7ffc07d1655','user','{"role":"user","content":[{"type":"text","text":"pay"}]}');
INSERT INTO "assent_messages" VALUES('denied',1,'f22155aec042496c7538f7ffc07d1655','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"pay","args":{"amount":5}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('asking',0,'698300fdb49152e834de0a02692e04fb','user','{"role":"user","content":[{"type":"text","text":"paint it"}]}');
INSERT INTO "assent_messages" VALUES('asking',1,'698300fdb49152e834de0a02692e04fb','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"ask_user","args":{"questions":[{"key":"colour","prompt":"Which colour?","options":[{"label":"Red","value":"red"}]}]}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
INSERT INTO "assent_messages" VALUES('in-doubt',0,'a4750b75225aca5e5b3188f2df671416','user','{"role":"user","content":[{"type":"text","text":"pay"}]}');
INSERT INTO "assent_messages" VALUES('in-doubt',1,'a4750b75225aca5e5b3188f2df671416','assistant','{"role":"assistant","content":[{"type":"tool_call","id":"call-1","name":"pay","args":{"amount":5}}],"stop_reason":"tool_use","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}');
CREATE TABLE assent_requests (
    thread_id VARCHAR(255) NOT NULL, 
    question_id VARCHAR(255) NOT NULL, 
    round INTEGER NOT NULL, 
    run_id VARCHAR(255), 
    kind VARCHAR(16) NOT NULL, 
    payload TEXT NOT NULL, 
    digest VARCHAR(64), 
    status VARCHAR(16) NOT NULL, 
    created_at BIGINT NOT NULL, 
    expires_at BIGINT, 
    answer TEXT, 
    reason TEXT, 
    answered_by VARCHAR(255), 
    via VARCHAR(255), 
    settled_at BIGINT, 
    write_id BIGINT, 
    PRIMARY KEY (thread_id, question_id, round)
);
INSERT INTO "assent_requests" VALUES('paused','call-1',1,'9c6e98eada7cc87a138b50b3703565b3','approve','{"payload":{"kind":"approve","tool_name":"pay","args":{"amount":5,"currency":"EUR"}},"created_at":1794775242.0364175}','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','pending',1794775242036,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "assent_requests" VALUES('paused-unknown-tool','call-1',1,'72b054286e0a10a319fb8424c329f56c','approve','{"payload":{"kind":"approve","tool_name":"fax","args":{"text":"hi"}},"created_at":1794775242.0426037}','d8d8a0343c494690ccf0f34ccaeb089d57b4f114bafc271d5dbb67cc65567619','pending',1794775242043,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "assent_requests" VALUES('paused-parallel','call-1',1,'804e4e9befb4244d8611bc6719c24fe2','approve','{"payload":{"kind":"approve","tool_name":"pay","args":{"amount":5,"currency":"EUR"}},"created_at":1794775242.045338}','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','pending',1794775242045,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "assent_requests" VALUES('paused-parallel','call-2',1,'804e4e9befb4244d8611bc6719c24fe2','approve','{"payload":{"kind":"approve","tool_name":"pay","args":{"amount":5,"currency":"EUR"}},"created_at":1794775242.045416}','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','pending',1794775242045,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "assent_requests" VALUES('answered','call-1',1,'60480a311d71b869d58f53296449b935','approve','{"payload":{"kind":"approve","tool_name":"pay","args":{"amount":5,"currency":"EUR"}},"created_at":1794775242.0478928}','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','answered',1794775242048,NULL,'{"decision":"approve"}',NULL,'ann','test',1700000000000,8113763125207600610);
INSERT INTO "assent_requests" VALUES('edited','call-1',1,'fec9b2e9e72360208d6dd39ccbf43b52','approve','{"payload":{"kind":"approve","tool_name":"pay","args":{"amount":5,"currency":"EUR"}},"created_at":1794775242.056667}','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','answered',1794775242057,NULL,'{"decision":"edit","edited_args":{"amount":3,"currency":"CHF"}}',NULL,'ann','test',1700000000000,7136622930512433699);
INSERT INTO "assent_requests" VALUES('denied','call-1',1,'f22155aec042496c7538f7ffc07d1655','approve','{"payload":{"kind":"approve","tool_name":"pay","args":{"amount":5,"currency":"EUR"}},"created_at":1794775242.0605826}','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','answered',1794775242061,NULL,'{"decision":"deny","reason":"too much"}',NULL,'ann','test',1700000000000,1289202838288177087);
INSERT INTO "assent_requests" VALUES('asking','call-1:body:ask:1',1,'698300fdb49152e834de0a02692e04fb','ask','{"payload":{"kind":"ask","questions":[{"key":"colour","prompt":"Which colour?","options":[{"label":"Red","value":"red","allow_input":false}],"multi_select":false,"required":true}]},"created_at":1794775242.0746388,"timeout_seconds":1000000000.0}',NULL,'pending',1794775242075,2794775242075,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "assent_requests" VALUES('in-doubt','call-1',1,'a4750b75225aca5e5b3188f2df671416','approve','{"payload":{"kind":"approve","tool_name":"pay","args":{"amount":5,"currency":"EUR"}},"created_at":1794775242.0810552}','9564bdf208660a09c9f8a857f7ba0293b0c1a1c9383ffdd0e883ac9dc907dff8','answered',1794775242081,NULL,'{"decision":"approve"}',NULL,'ann',NULL,1700000000000,4800894802627974506);
CREATE TABLE assent_runs (
    thread_id VARCHAR(255) NOT NULL, 
    run_id VARCHAR(255) NOT NULL, 
    agent_id VARCHAR(255) NOT NULL, 
    status VARCHAR(16), 
    iteration BIGINT NOT NULL, 
    usage TEXT NOT NULL, 
    started_at BIGINT NOT NULL, 
    ended_at BIGINT, 
    PRIMARY KEY (thread_id, run_id)
)
 WITHOUT ROWID;
INSERT INTO "assent_runs" VALUES('answered','60480a311d71b869d58f53296449b935','agent',NULL,0,'{}',1700000000000,NULL);
INSERT INTO "assent_runs" VALUES('asking','698300fdb49152e834de0a02692e04fb','agent',NULL,0,'{}',1700000000000,NULL);
INSERT INTO "assent_runs" VALUES('denied','f22155aec042496c7538f7ffc07d1655','agent',NULL,0,'{}',1700000000000,NULL);
INSERT INTO "assent_runs" VALUES('edited','fec9b2e9e72360208d6dd39ccbf43b52','agent',NULL,0,'{}',1700000000000,NULL);
INSERT INTO "assent_runs" VALUES('finished','89e19db14d87c8e7f8087c2d4c6c4313','agent','completed',1,'{}',1700000000000,1700000000000);
INSERT INTO "assent_runs" VALUES('in-doubt','a4750b75225aca5e5b3188f2df671416','agent',NULL,0,'{}',1700000000000,NULL);
INSERT INTO "assent_runs" VALUES('paused','9c6e98eada7cc87a138b50b3703565b3','agent',NULL,0,'{}',1700000000000,NULL);
INSERT INTO "assent_runs" VALUES('paused-parallel','804e4e9befb4244d8611bc6719c24fe2','agent',NULL,0,'{}',1700000000000,NULL);
INSERT INTO "assent_runs" VALUES('paused-unknown-tool','72b054286e0a10a319fb8424c329f56c','agent',NULL,0,'{}',1700000000000,NULL);
CREATE TABLE assent_threads (
    thread_id VARCHAR(255) NOT NULL, 
    parent VARCHAR(255), 
    next_seq BIGINT NOT NULL, 
    fence BIGINT NOT NULL, 
    lease_owner VARCHAR(255), 
    lease_until BIGINT NOT NULL, 
    run_id VARCHAR(255), 
    write_id BIGINT NOT NULL, 
    created_at BIGINT NOT NULL, 
    updated_at BIGINT NOT NULL, 
    extra TEXT, 
    PRIMARY KEY (thread_id)
)
 WITHOUT ROWID;
INSERT INTO "assent_threads" VALUES('answered',NULL,2,2,NULL,0,'60480a311d71b869d58f53296449b935',2960062172695669073,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('asking',NULL,2,4,NULL,0,'698300fdb49152e834de0a02692e04fb',1067223041140202635,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('denied',NULL,2,2,NULL,0,'f22155aec042496c7538f7ffc07d1655',1361268733642173348,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('edited',NULL,2,2,NULL,0,'fec9b2e9e72360208d6dd39ccbf43b52',1535608919487175106,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('finished',NULL,2,2,NULL,0,'89e19db14d87c8e7f8087c2d4c6c4313',2689109806560665474,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('in-doubt',NULL,2,3,'a process of 0.1.0',1700000030000,'a4750b75225aca5e5b3188f2df671416',5683616633854467829,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('paused',NULL,2,2,NULL,0,'9c6e98eada7cc87a138b50b3703565b3',2174185991034999373,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('paused-parallel',NULL,2,2,NULL,0,'804e4e9befb4244d8611bc6719c24fe2',755806277783390121,1700000000000,1700000000000,NULL);
INSERT INTO "assent_threads" VALUES('paused-unknown-tool',NULL,2,2,NULL,0,'72b054286e0a10a319fb8424c329f56c',7531726297981814492,1700000000000,1700000000000,NULL);
CREATE INDEX assent_requests_open ON assent_requests (status, created_at, thread_id, question_id) WHERE status = 'pending';
CREATE INDEX assent_requests_due ON assent_requests (status, expires_at) WHERE status = 'pending' AND expires_at IS NOT NULL;
COMMIT;
