# SPDX-License-Identifier: MIT
"""gen.py: what it does to a .proto before protoc-c, and what its checks refuse."""
import importlib.util
import sys
import unittest

GEN = sys.argv[1]
spec = importlib.util.spec_from_file_location("gen", GEN)
gen = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gen)


def squeeze(text):
    return " ".join(text.split())


class Rewrite(unittest.TestCase):
    def check(self, given, wanted, flat=None):
        self.assertEqual(squeeze(gen.rewrite(given, "t.proto", flat or {})), squeeze(wanted))

    def test_optional_becomes_a_oneof(self):
        self.check("message M { optional bool a = 1; }", "message M { oneof _a { bool a = 1; } }")

    def test_over_lines_with_options_and_comments(self):
        self.check('message M { optional // optional x = 9;\n sint32\n a /* optional */ = 1 [json_name = "optional;"]; }',
                   'message M { oneof _a { // optional x = 9;\n sint32 a /* optional */ = 1 [json_name = "optional;"]; } }')

    def test_other_words_stay(self):
        for text in ('message M { // optional bool a = 1;\n string optional = 1; }',
                     'message optional { } message M { /* ; optional bool b = 2; */ .optional o = 1; }'):
            self.check(text, text)

    def test_nested(self):
        self.check("message M { message N { optional a.B c = 1; } optional N n = 2; }",
                   "message M { message N { oneof _c { a.B c = 1; } } oneof _n { N n = 2; } }")

    def test_imports_and_size(self):
        self.check('import public "a/b.proto"; option optimize_for = CODE_SIZE; option x = 1;',
                   'import public "a_b.proto"; option x = 1;', {"a/b.proto": "a_b"})

    def test_unknown_import(self):
        with self.assertRaises(SystemExit):
            gen.rewrite('import "a.proto";', "t.proto", {})

    def test_unreadable(self):
        for text in ("message M { optional bool a = 1 }", "message M { @ }", '"open'):
            with self.assertRaises(SystemExit):
                gen.rewrite(text, "t.proto", {})


class Fake:
    def __init__(self, uses, reasons=()):
        self.uses, self.enums = uses, {"agentbox.v1.Reason": dict(reasons)}


class Check(unittest.TestCase):
    def refuses(self, uses, word):
        with self.assertRaises(SystemExit) as e:
            gen.check([Fake(uses)], "/dev/null")
        self.assertIn(word, str(e.exception))

    def test_recursion(self):
        self.refuses({"A": [("b", "B")], "B": [("c", "C")], "C": [("b", "B")]}, "recursive")
        self.refuses({"A": [("a", "A")]}, "recursive")

    def test_any_and_struct(self):
        self.refuses({"A": [("x", "google.protobuf.Any")]}, "Any")
        self.refuses({"A": [("x", "google.protobuf.Struct")]}, "recursive")

    def test_reasons(self):
        with self.assertRaises(SystemExit):
            gen.check([Fake({}, [("BUG", 42)])], "/dev/null")

    def test_a_diamond_is_fine(self):
        gen.check([Fake({"A": [("b", "B"), ("c", "C")], "B": [("d", "D")], "C": [("d", "D")], "D": []})],
                  "/dev/null")


unittest.main(argv=sys.argv[:1])
